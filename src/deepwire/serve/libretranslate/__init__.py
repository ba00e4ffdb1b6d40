"""The HTTP interface of LibreTranslate, so that its clients work unchanged."""
