"""Groups of inputs that pages share. Each reads the state and writes a new one."""
