package trace

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// A part is replayed and dropped when it has partSteps steps or when the replies in it have listed
// partNames names, so that the memory for each contender is limited.
const (
	partSteps = 64
	partNames = 1024
)

// Recorder records the steps of contenders and replays them. Its methods may be called
// concurrently.
type Recorder struct {
	mu    sync.Mutex
	file  *gob.Encoder            // nil if the steps are not kept
	live  map[*recording]struct{} // that have steps that were not replayed
	last  int                     // the number of the last contender
	count Count
	err   error // the first one
}

// NewRecorder returns a Recorder that also writes all steps to file, unless that is nil.
func NewRecorder(file io.Writer) *Recorder {
	r := &Recorder{live: map[*recording]struct{}{}}
	if file != nil {
		r.file = gob.NewEncoder(file)
	}
	return r
}

// recording is the recording of one contender.
type recording struct {
	recorder *Recorder
	machine  *contender.Contender
	replayer *Replayer

	mu      sync.Mutex // so that Finish can be called during a step
	part    Part
	names   int      // in the part
	answers []Answer // in the current step
}

// Contender returns a contender, and a function that must be called instead of its method Step:
// it calls Step and records the step. It can be assigned to queue.Record.
func (r *Recorder) Contender(cfg *contender.Config) (*contender.Contender, func(contender.Conn, *contender.Input, []contender.Output) []contender.Output) {
	c := &recording{recorder: r, part: Part{Config: configOf(cfg)}}
	c.replayer = NewReplayer(c.part.Config)
	watched := *cfg
	watched.Policy = c.record(cfg.Policy)
	c.machine = contender.New(&watched)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	c.part.Contender = r.last
	r.live[c] = struct{}{}
	return c.machine, c.step
}

// record returns a Policy that records the answers of p.
func (c *recording) record(p contender.Policy) contender.Policy {
	if f := p.Blocks; f != nil {
		p.Blocks = func(name string) bool {
			yes := f(name)
			c.answers = append(c.answers, Answer{Func: "Blocks", Name: name, Yes: yes})
			return yes
		}
	}
	if f := p.Replaceable; f != nil {
		p.Replaceable = func(name string) bool {
			yes := f(name)
			c.answers = append(c.answers, Answer{Func: "Replaceable", Name: name, Yes: yes})
			return yes
		}
	}
	if f := p.Admit; f != nil {
		p.Admit = func(l contender.Listing) contender.Admission {
			a := Answer{Func: "Admit", Name: l.Own, Predecessor: l.Predecessor, Admission: f(l)}
			result := a.Admission
			a.Admission.Err = recorded(result.Err)
			c.answers = append(c.answers, a)
			return result
		}
	}
	return p
}

// step calls Step of the contender and records the step.
func (c *recording) step(conn contender.Conn, in *contender.Input, out []contender.Output) []contender.Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Step{Conn: conn, Input: copyInput(*in)}
	before := len(out)
	out = c.machine.Step(conn, in, out)
	s.Answers, c.answers = c.answers, nil
	s.Outputs = copyOutputs(out[before:])
	c.part.Steps = append(c.part.Steps, s)
	c.names += len(s.Input.Reply.Names)
	if done := c.machine.Done(); done || len(c.part.Steps) >= partSteps || c.names >= partNames {
		c.replay(done)
	}
	return out
}

// replay replays and drops the recorded part. c.mu is locked.
func (c *recording) replay(done bool) {
	r := c.recorder
	err := c.replayer.Replay(c.part.Steps)
	if err != nil {
		err = fmt.Errorf("contender %d in %s: %w", c.part.Contender, c.part.Config.Dir, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		err = errors.Join(err, r.file.Encode(&c.part))
	}
	if r.err == nil {
		r.err = err
	}
	r.count.Steps += len(c.part.Steps)
	c.part.Steps, c.names = nil, 0
	if done {
		r.count.Contenders++
		delete(r.live, c)
	}
}

// Finish replays the recorded steps of contenders that have not finished. It returns the number of
// all replayed steps, and an error if an output has differed.
func (r *Recorder) Finish() (Count, error) {
	r.mu.Lock()
	live := make([]*recording, 0, len(r.live))
	for c := range r.live {
		live = append(live, c)
	}
	r.mu.Unlock()
	for _, c := range live {
		c.mu.Lock()
		c.replay(true)
		c.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count, r.err
}
