//go:build !unix

package cmdline

import "os"

// programSignals is empty, because commands do not run programs on these systems.
var programSignals []os.Signal

// IgnoreBrokenPipe does nothing.
func IgnoreBrokenPipe() {}

// ReapChildren does nothing.
func ReapChildren() {}
