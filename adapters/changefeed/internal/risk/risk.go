// Package risk keeps the risks that the user of a store has accepted.
package risk

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Accepted is a set of risks. The zero value is the empty set.
type Accepted struct{ risks []changefeed.Risk }

// Add accepts risks. If one of them is unknown it accepts none, and the error wraps
// [leaderelection.ErrInvalidOption].
func (a *Accepted) Add(risks ...changefeed.Risk) error {
	for _, r := range risks {
		if _, err := changefeed.ParseRisk(string(r)); err != nil {
			return err
		}
	}
	a.risks = append(a.risks, risks...)
	return nil
}

// Check returns a [changefeed.UnsafeError] about the settings whose risks are not accepted,
// or nil if all are. The store is named in the error.
func (a Accepted) Check(store string, found []changefeed.UnsafeSetting) error {
	var rest []changefeed.UnsafeSetting
	for _, s := range found {
		if !slices.Contains(a.risks, s.Risk) {
			rest = append(rest, s)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return &changefeed.UnsafeError{Store: store, Settings: rest}
}
