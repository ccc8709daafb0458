"""Tables and live displays for people, from plain results. Nothing here measures, asks or waits for anything."""
