//go:build !unix

package docker

import "os/exec"

func killGroupOnCancel(*exec.Cmd) {}
