"""TOML <-> Config. Imports nothing here: `files` is on the light path of every read-only verb, `load` is not."""
