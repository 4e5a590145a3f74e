//go:build !raftlog_controls

package replica

// Disabled is a set of disabled checks. It is always empty.
type Disabled struct{}

// Has reports whether a check is disabled.
func (Disabled) Has(Check) bool { return false }
