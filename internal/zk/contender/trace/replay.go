package trace

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// Part is a sequence of consecutive steps of one contender. A file of steps is a sequence of parts
// in the encoding of package gob. The parts of several contenders may alternate.
type Part struct {
	Contender int // a number that identifies the contender in the file
	Config    Config
	Steps     []Step
}

// Replayer passes the recorded inputs of one contender to a new one.
type Replayer struct {
	machine *contender.Contender
	steps   int

	answers []Answer // of the current step that were not used
	err     error    // of the current step
}

// NewReplayer returns a Replayer for a contender that was recorded with this configuration.
func NewReplayer(cfg Config) *Replayer {
	r := &Replayer{}
	r.machine = contender.New(cfg.withPolicy(contender.Policy{
		Blocks:      func(name string) bool { return r.answer(Answer{Func: "Blocks", Name: name}).Yes },
		Replaceable: func(name string) bool { return r.answer(Answer{Func: "Replaceable", Name: name}).Yes },
		Admit: func(l contender.Listing) contender.Admission {
			return r.answer(Answer{Func: "Admit", Name: l.Own, Predecessor: l.Predecessor}).Admission
		},
	}))
	return r
}

// Check passes the inputs of steps to a new contender, whose policy is called again, and compares the
// outputs. The Answers of the steps must be empty. Check is for runs of contenders without a Recorder, such as
// those of a model.
func Check(cfg *contender.Config, steps []Step) error {
	r := &Replayer{machine: contender.New(cfg)}
	for _, s := range steps {
		s.Input, s.Outputs = copyInput(s.Input), copyOutputs(s.Outputs)
		if err := r.Replay([]Step{s}); err != nil {
			return err
		}
	}
	return nil
}

// answer returns the recorded answer to a call.
func (r *Replayer) answer(call Answer) Answer {
	if len(r.answers) == 0 {
		r.err = fmt.Errorf("the replay calls %s, after the last recorded answer", nonzero(call))
		return call
	}
	a := r.answers[0]
	r.answers = r.answers[1:]
	if a.Func != call.Func || a.Name != call.Name || a.Predecessor != call.Predecessor {
		r.err = fmt.Errorf("the replay calls %s; recorded was %s", nonzero(call), nonzero(a))
	}
	return a
}

// Replay replays steps that follow those of earlier calls. It returns an error if the contender
// differs from the recorded one.
func (r *Replayer) Replay(steps []Step) error {
	for i := range steps {
		s := &steps[i]
		in := copyInput(s.Input) // Step may change it
		r.answers, r.err = s.Answers, nil
		outputs := copyOutputs(r.machine.Step(s.Conn, &in, nil))
		switch {
		case r.err != nil:
		case len(r.answers) > 0:
			r.err = fmt.Errorf("the replay does not call %s", nonzero(r.answers[0]))
		case !sameOutputs(outputs, s.Outputs):
			r.err = errors.New("the outputs differ")
		}
		if r.err != nil {
			replayed := Step{s.Conn, s.Input, s.Answers, outputs}
			return fmt.Errorf("step %d: %w\nrecorded: %v\nreplayed: %v\nthe steps before:%v", r.steps, r.err, s, &replayed, listing(steps[max(0, i-10):i]))
		}
		r.steps++
	}
	return nil
}

// listing describes steps, one below the other.
func listing(steps []Step) string {
	var b strings.Builder
	for i := range steps {
		fmt.Fprintf(&b, "\n%v", &steps[i])
	}
	return b.String()
}

// Count is how much was replayed.
type Count struct{ Contenders, Steps int }

// Add adds another count.
func (c *Count) Add(other Count) {
	c.Contenders += other.Contenders
	c.Steps += other.Steps
}

// String implements fmt.Stringer.
func (c Count) String() string {
	return fmt.Sprintf("%d steps of %d contenders", c.Steps, c.Contenders)
}

// ReplayFile replays a file of steps. It returns how much it has replayed, and an error if a
// contender differs from the recorded one.
func ReplayFile(file io.Reader) (count Count, err error) {
	decoder := gob.NewDecoder(file)
	replayers := map[int]*Replayer{}
	for {
		var p Part
		switch err := decoder.Decode(&p); {
		case err == io.EOF:
			count.Contenders = len(replayers)
			return count, nil
		case err != nil:
			return count, err
		}
		r := replayers[p.Contender]
		if r == nil {
			r = NewReplayer(p.Config)
			replayers[p.Contender] = r
		}
		if err := r.Replay(p.Steps); err != nil {
			return count, fmt.Errorf("contender %d in %s: %w", p.Contender, p.Config.Dir, err)
		}
		count.Steps += len(p.Steps)
	}
}
