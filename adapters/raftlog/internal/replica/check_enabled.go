//go:build !raftlog_controls

package replica

// Disabled is a set of disabled safety checks. In this build it is always empty.
type Disabled struct{}

// Has reports whether a check is disabled, which it never is in this build.
func (Disabled) Has(Check) bool { return false }
