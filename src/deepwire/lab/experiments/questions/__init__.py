"""Questions about systems: long runs to the same update and to each system's plateau, and the answers."""
