package changefeed

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection"
)

// Risk is a way in which a deployment can lose acknowledged writes. A store's Start rejects
// a deployment with a risk and returns an [UnsafeError], unless the user accepts the risk: by
// the option WithRisk of the store's package, by the parameter unsafe of an address for
// package storeurl, or by the flag --store-unsafe of the command elector.
//
// The consequence of each risk is the same: two candidates can be leader until the lease of
// the first expires, and a fencing token can be issued twice. The risks differ in their
// precondition.
type Risk string

const (
	// RiskFailover means that another server that lacks acknowledged writes can take over,
	// automatically or by a command of an operator.
	RiskFailover Risk = "failover"
	// RiskRestart means that the server can start with older data after its process has
	// ended.
	RiskRestart Risk = "restart"
	// RiskPowerLoss means that the last acknowledged writes may not be on disk when the
	// machine stops without a shutdown.
	RiskPowerLoss Risk = "power-loss"
)

// Risks returns all risks, sorted by name.
func Risks() []Risk { return []Risk{RiskFailover, RiskPowerLoss, RiskRestart} }

// ParseRisk returns the risk with the given name. For any other name it returns an error
// that wraps [leaderelection.ErrInvalid] and lists the valid names.
func ParseRisk(name string) (Risk, error) {
	if r := Risk(name); slices.Contains(Risks(), r) {
		return r, nil
	}
	names := make([]string, 0, len(Risks()))
	for _, r := range Risks() {
		names = append(names, string(r))
	}
	return "", fmt.Errorf("%w: unknown risk %q: expected one of %s", leaderelection.ErrInvalid, name, strings.Join(names, ", "))
}

// describeEffect completes the sentence "this setting means that …" in the message of an UnsafeError.
func (r Risk) describeEffect() string {
	switch r {
	case RiskFailover:
		return "a failover can lose acknowledged writes"
	case RiskRestart:
		return "a restart of the server can bring back an older record"
	case RiskPowerLoss:
		return "a crash of the server's machine can lose acknowledged writes"
	}
	return "acknowledged writes can be lost"
}

// UnsafeSetting describes a property of a deployment that can lose acknowledged writes.
type UnsafeSetting struct {
	// Name and Value are the name and the value of a setting of the server, or of a part of the client.
	Name, Value string
	// Risk is the risk that the user must name to accept the setting.
	Risk Risk
	// Remedy describes how to avoid the risk.
	Remedy string
}

// UnsafeError is the error that a store's Start returns for a deployment with risks that
// were not accepted. It wraps [ErrUnsuitable], and [leaderelection.ErrInvalid], because
// another attempt fails as well until the deployment or the option WithRisk is changed.
type UnsafeError struct {
	// Store names the store and the server.
	Store string
	// Settings are the settings whose risks were not accepted. There is at least one.
	Settings []UnsafeSetting
}

// Risks returns the risks that were not accepted, without duplicates.
func (e *UnsafeError) Risks() []Risk {
	var all []Risk
	for _, s := range e.Settings {
		if !slices.Contains(all, s.Risk) {
			all = append(all, s.Risk)
		}
	}
	return all
}

// Error returns a message with each setting, its value and its remedy, and how to accept
// the risks.
func (e *UnsafeError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s is not safe for elections: ", ErrUnsuitable, e.Store)
	for i, s := range e.Settings {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s is %q, so %s (%s)", s.Name, s.Value, s.Risk.describeEffect(), s.Remedy)
	}
	var options, names []string
	for _, r := range e.Risks() {
		options = append(options, fmt.Sprintf("%q", string(r)))
		names = append(names, string(r))
	}
	fmt.Fprintf(&b, "; to accept the risk of two leaders, use the option WithRisk(%s) of the store or the parameter unsafe=%s of its address",
		strings.Join(options, ", "), strings.Join(names, ","))
	return b.String()
}

// Unwrap returns [ErrUnsuitable] and [leaderelection.ErrInvalid].
func (e *UnsafeError) Unwrap() []error {
	return []error{ErrUnsuitable, leaderelection.ErrInvalid}
}
