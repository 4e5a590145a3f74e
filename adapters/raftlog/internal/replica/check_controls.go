//go:build raftlog_controls

package replica

// Disabled is a set of safety checks that a test has disabled.
type Disabled uint

// Disable returns the set that contains only the check c.
func Disable(c Check) Disabled { return 1 << c }

// Has reports whether the set contains the check c, so that c is disabled.
func (s Disabled) Has(c Check) bool { return s&Disable(c) != 0 }
