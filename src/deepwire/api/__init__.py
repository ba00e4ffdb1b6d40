"""The public functions of `deepwire`: each module holds some of them, imported when they are used."""
