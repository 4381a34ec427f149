"""From a command line to built objects: schema, checks, wiring."""
