//go:build !unix

package main

import "os"

// forwardedSignals contains only a signal that elector handles itself: programs do not receive signals.
var forwardedSignals = []os.Signal{os.Interrupt}
