//go:build raftlog_controls

package replica

// Disabled is a set of disabled checks.
type Disabled uint

// Disable returns the set of one check.
func Disable(c Check) Disabled { return 1 << c }

// Has reports whether a check is disabled.
func (s Disabled) Has(c Check) bool { return s&Disable(c) != 0 }
