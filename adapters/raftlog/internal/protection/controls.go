//go:build raftlog_controls

package protection

// A Set is the rules that are switched off.
type Set uint

// Of returns the set of one rule.
func Of(r Rule) Set { return 1 << r }

// Has reports whether a rule is switched off.
func (s Set) Has(r Rule) bool { return s&Of(r) != 0 }
