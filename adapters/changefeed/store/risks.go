package store

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// AcceptedRisks is the set of risks that the user of a store accepts. Stores fill it by their
// option WithRisk. The zero value is the empty set.
type AcceptedRisks struct{ risks []changefeed.Risk }

// Add adds risks. If one of them is unknown, Add adds none of them and returns an error that
// wraps [leaderelection.ErrInvalid].
func (a *AcceptedRisks) Add(risks ...changefeed.Risk) error {
	for _, r := range risks {
		if _, err := changefeed.ParseRisk(string(r)); err != nil {
			return err
		}
	}
	a.risks = append(a.risks, risks...)
	return nil
}

// Check returns an [changefeed.UnsafeError] that contains the settings whose risks are not accepted, or
// nil if all are. store names the store and the server in the error.
func (a AcceptedRisks) Check(store string, found []changefeed.UnsafeSetting) error {
	var rejected []changefeed.UnsafeSetting
	for _, s := range found {
		if !slices.Contains(a.risks, s.Risk) {
			rejected = append(rejected, s)
		}
	}
	if len(rejected) == 0 {
		return nil
	}
	return &changefeed.UnsafeError{Store: store, Settings: rejected}
}
