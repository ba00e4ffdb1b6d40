"""Files and disks, for all packages above: whole files or none, locks, full disks, downloads."""
