//go:build !unix

package main

import "os"

// passedOn are the signals that a program gets from elector: there are none.
var passedOn = []os.Signal{os.Interrupt}
