//go:build !raftlog_controls

package protection

// A Set is the rules that are switched off: none.
type Set struct{}

// Has reports whether a rule is switched off.
func (Set) Has(Rule) bool { return false }
