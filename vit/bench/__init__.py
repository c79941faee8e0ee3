"""What a viewer of attention maps costs, ours and others', each in a process of its own."""
