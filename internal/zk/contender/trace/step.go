package trace

import (
	"encoding/gob"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// Step is one call of contender.Contender.Step. Its errors are of type *Error.
type Step struct {
	Conn    contender.Conn
	Input   contender.Input
	Answers []Answer // of the contender's Policy, in the order of the calls
	Outputs []contender.Output
}

// Answer is one call of a function of contender.Policy. They are recorded because they are
// inputs of the contender as well: the functions belong to its user.
type Answer struct {
	Func        string // Blocks, Replaceable or Admit
	Name        string // the argument; for Admit, Listing.Own
	Predecessor string // Admit: Listing.Predecessor
	Yes         bool   // the result of Blocks or Replaceable
	Admission   contender.Admission
}

// Error is the recorded form of an error: its text and the texts of the errors that it wraps. It
// is an error of the same kinds: a contender recognizes errors by errors.Is.
type Error struct{ Texts []string }

func (e *Error) Error() string { return e.Texts[0] }

// Is implements the interface of errors.Is.
func (e *Error) Is(target error) bool { return slices.Contains(e.Texts, target.Error()) }

func init() { gob.Register(&Error{}) }

// recorded returns the recorded form of an error.
func recorded(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok {
		return e
	}
	return &Error{texts(err)}
}

// texts returns the texts of an error and of the errors that it wraps.
func texts(err error) []string {
	if e, ok := err.(*Error); ok {
		return e.Texts
	}
	all := []string{err.Error()}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if wrapped := e.Unwrap(); wrapped != nil {
			all = append(all, texts(wrapped)...)
		}
	case interface{ Unwrap() []error }:
		for _, wrapped := range e.Unwrap() {
			all = append(all, texts(wrapped)...)
		}
	}
	return all
}

// copyOf returns a copy of a slice, nil if it is empty: gob does not distinguish the two.
func copyOf[T any](s []T) []T { return append([]T(nil), s...) }

func copyRequest(q contender.Request) contender.Request {
	q.Prefixes, q.Names, q.Err = copyOf(q.Prefixes), copyOf(q.Names), recorded(q.Err)
	return q
}

// copyInput returns a copy that shares no memory that a contender or a driver could change.
func copyInput(in contender.Input) contender.Input {
	in.Request, in.Err = copyRequest(in.Request), recorded(in.Err)
	in.Reply.Names, in.Reply.Err = copyOf(in.Reply.Names), recorded(in.Reply.Err)
	return in
}

// copyOutputs does the same for outputs.
func copyOutputs(outputs []contender.Output) []contender.Output {
	outputs = copyOf(outputs)
	for i := range outputs {
		o := &outputs[i]
		o.Request, o.State.Err, o.Err = copyRequest(o.Request), recorded(o.State.Err), recorded(o.Err)
	}
	return outputs
}

// Config is the recorded form of contender.Config.
type Config struct {
	Blocks, Replaceable, Admit bool // whether the Policy has the function

	Dir            string
	Naming         contender.Naming
	Tombstone      string
	CanMakeQueue   bool
	QueueMayVanish bool
	QueueCzxid     int64
	QueueSession   int64
	Lookahead      bool
	Patience       time.Duration
	Standby        time.Duration
}

func configOf(c *contender.Config) Config {
	return Config{
		Blocks: c.Blocks != nil, Replaceable: c.Replaceable != nil, Admit: c.Admit != nil,
		Dir: c.Dir, Naming: c.Naming, Tombstone: c.Tombstone, CanMakeQueue: c.CanMakeQueue, QueueMayVanish: c.QueueMayVanish,
		QueueCzxid: c.QueueCzxid, QueueSession: c.QueueSession,
		Lookahead: c.Lookahead, Patience: c.Patience, Standby: c.Standby,
	}
}

// withPolicy returns the configuration of a contender, with those functions of p that the
// recorded contender had.
func (c *Config) withPolicy(p contender.Policy) *contender.Config {
	if !c.Blocks {
		p.Blocks = nil
	}
	if !c.Replaceable {
		p.Replaceable = nil
	}
	if !c.Admit {
		p.Admit = nil
	}
	return &contender.Config{
		Policy: p,
		Dir:    c.Dir, Naming: c.Naming, Tombstone: c.Tombstone, CanMakeQueue: c.CanMakeQueue, QueueMayVanish: c.QueueMayVanish,
		QueueCzxid: c.QueueCzxid, QueueSession: c.QueueSession,
		Lookahead: c.Lookahead, Patience: c.Patience, Standby: c.Standby,
	}
}

// String describes a step, for reports.
func (s *Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "connection %s\n  input %s", nonzero(s.Conn), nonzero(s.Input))
	for _, a := range s.Answers {
		fmt.Fprintf(&b, "\n  answer %s", nonzero(a))
	}
	for _, o := range s.Outputs {
		fmt.Fprintf(&b, "\n  output %s", nonzero(o))
	}
	return b.String()
}

// nonzero describes a struct by its kind and the other fields that are not zero.
func nonzero(value any) string {
	v := reflect.ValueOf(value)
	var fields []string
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		switch kind := f.Interface().(type) {
		case contender.InputKind:
			fields = append(fields, inputNames[kind])
		case contender.OutputKind:
			fields = append(fields, outputNames[kind])
		case contender.RequestKind:
			fields = append(fields, kind.String())
		default:
			switch {
			case f.IsZero():
			case f.Kind() == reflect.Struct:
				fields = append(fields, name+nonzero(f.Interface()))
			default:
				fields = append(fields, fmt.Sprintf("%s:%v", name, f.Interface()))
			}
		}
	}
	return "{" + strings.Join(fields, " ") + "}"
}

var (
	inputNames  = [...]string{"Start", "ConnChanged", "Replied", "Fired", "Expired", "Leave", "Rename"}
	outputNames = [...]string{
		"Send", "Report", "Set", "Stop", "Prove", "Rest", "Moved", "Renamed", "Departed", "Ignoring", "Removing", "Bury", "Finish",
	}
)

// sameOutputs reports whether two recorded lists of outputs are equal.
func sameOutputs(a, b []contender.Output) bool { return len(a) == len(b) && reflect.DeepEqual(a, b) }
