"""How records pass from task to task: buffers, the gate that orders them, partitioners and keys."""
