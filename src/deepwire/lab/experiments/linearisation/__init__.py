"""``deepwire analyze linearise``: one layer at a time replaced by a trained linear map."""
