"""The native watch: watchdog 7.1 behind `intake.watch`, with what it gets wrong put right."""
