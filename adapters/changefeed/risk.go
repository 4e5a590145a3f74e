package changefeed

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection"
)

// Risk names how a deployment can lose writes that it has acknowledged. A store's Start
// refuses a deployment with a risk, by an [UnsafeError], until the user names the risk: in
// the option WithRisk of the store's package, in the parameter unsafe of an address for
// package storeurl, or in the flag --store-unsafe of the command elector.
//
// The consequence is the same for each: two candidates can lead until the lease of the
// first of them ends, and a fencing token can be given twice. The risks differ in what has
// to happen before.
type Risk string

const (
	// RiskFailover: another server takes over, automatically or by an operator's command,
	// and lacks acknowledged writes.
	RiskFailover Risk = "failover"
	// RiskRestart: the server's process ends, and the server starts with older data.
	RiskRestart Risk = "restart"
	// RiskPowerLoss: the server's machine stops without a shutdown, and the last
	// acknowledged writes were not on its disk.
	RiskPowerLoss Risk = "power-loss"
)

// Risks returns all risks, in order of their names.
func Risks() []Risk { return []Risk{RiskFailover, RiskPowerLoss, RiskRestart} }

// ParseRisk returns the risk that has the name. The error for any other name wraps
// [leaderelection.ErrInvalidOption] and lists the names that there are.
func ParseRisk(name string) (Risk, error) {
	if r := Risk(name); slices.Contains(Risks(), r) {
		return r, nil
	}
	names := make([]string, 0, len(Risks()))
	for _, r := range Risks() {
		names = append(names, string(r))
	}
	return "", fmt.Errorf("%w: there is no risk %q: the risks are %s", leaderelection.ErrInvalidOption, name, strings.Join(names, ", "))
}

// effect completes the sentence "this setting means that …".
func (r Risk) effect() string {
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

// UnsafeSetting is what was found in a deployment that can lose acknowledged writes.
type UnsafeSetting struct {
	// Name and Value are those of the server's setting, or of a part of the client.
	Name, Value string
	// Risk is what comes of it, and what the user names to accept it.
	Risk Risk
	// Remedy says how to avoid the risk.
	Remedy string
}

// UnsafeError is the error of a store's Start for a deployment whose risks were not
// accepted. It wraps [ErrUnsuitable].
type UnsafeError struct {
	// Store names the store and the server.
	Store string
	// Settings are those whose risks were not accepted; there is at least one.
	Settings []UnsafeSetting
}

// Risks returns the risks that were not accepted, each once.
func (e *UnsafeError) Risks() []Risk {
	var all []Risk
	for _, s := range e.Settings {
		if !slices.Contains(all, s.Risk) {
			all = append(all, s.Risk)
		}
	}
	return all
}

// Error names each setting with its value and its remedy, and how to accept the risks.
func (e *UnsafeError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s is not safe for elections: ", ErrUnsuitable, e.Store)
	for i, s := range e.Settings {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s is %q, so %s (%s)", s.Name, s.Value, s.Risk.effect(), s.Remedy)
	}
	var options, names []string
	for _, r := range e.Risks() {
		options = append(options, fmt.Sprintf("%q", string(r)))
		names = append(names, string(r))
	}
	fmt.Fprintf(&b, "; to accept that two candidates may lead then, give the store the option WithRisk(%s), or its address the parameter unsafe=%s",
		strings.Join(options, ", "), strings.Join(names, ","))
	return b.String()
}

// Unwrap returns [ErrUnsuitable].
func (e *UnsafeError) Unwrap() error { return ErrUnsuitable }
