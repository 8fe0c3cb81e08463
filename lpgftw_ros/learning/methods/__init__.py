"""Methods LPG-FTW is compared with, one file each."""
