//go:build unix && !linux

package ensemble

// Elsewhere than on Linux nothing ends a child with its parent; Close does.

import "os/exec"

type spawner struct{}

func newSpawner() *spawner { return &spawner{} }

func (*spawner) start(cmd *exec.Cmd) error { return cmd.Start() }

func (*spawner) close() {}
