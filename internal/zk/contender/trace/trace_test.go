package trace

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

const (
	ahead = "_c_00000000-0000-8e1e-8000-000000000000-lock-0000000001"
	own   = "_c_11111111-1111-8e1e-8000-000000000000-lock-0000000002"
)

var up = contender.Conn{Session: 1, Up: true, Epoch: 1}

// inputs are those of a contender that joins, waits for its predecessor to leave, and leaves.
func inputs() []contender.Input {
	return []contender.Input{
		{Kind: contender.Start},
		{Kind: contender.Replied, Request: contender.Request{Kind: contender.Create}, Reply: contender.Reply{Err: contender.ErrLost, Prefix: own[:len(own)-10]}},
		{Kind: contender.Replied, Request: contender.Request{Kind: contender.Search}, Reply: contender.Reply{Names: []string{own}}},
		{Kind: contender.Replied, Request: contender.Request{Kind: contender.Inspect, Name: own}, Reply: contender.Reply{Owner: 1}},
		{Kind: contender.Replied, Request: contender.Request{Kind: contender.List}, Reply: contender.Reply{Names: []string{own, ahead}}},
		{Kind: contender.Replied, Request: contender.Request{Kind: contender.ReadOwn, Name: own, Epoch: 1}, Reply: contender.Reply{Owner: 1, Czxid: 7}},
		{Kind: contender.Replied, Request: contender.Request{Kind: contender.ReadPredecessor, Name: ahead, Epoch: 1}, Reply: contender.Reply{Owner: 2}},
		{Kind: contender.Fired, Watch: contender.OtherWatch, Name: ahead, Event: contender.Deleted, Safe: true},
		{Kind: contender.Leave, Err: fmt.Errorf("wrapped: %w", io.EOF)},
		{Kind: contender.Replied, Request: contender.Request{Kind: contender.Delete, Name: own}, Reply: contender.Reply{Err: fmt.Errorf("wrapped: %w", zk.ErrNoNode)}},
	}
}

func config() *contender.Config {
	return &contender.Config{
		Policy: contender.Policy{Blocks: func(string) bool { return true }},
		Dir:    "/lock", Naming: contender.CuratorLock, Lookahead: true,
	}
}

// record passes inputs to a contender, and returns the record.
func record(t *testing.T, cfg *contender.Config, inputs []contender.Input) Part {
	t.Helper()
	var file bytes.Buffer
	r := NewRecorder(&file)
	_, step := r.Contender(cfg)
	for _, in := range inputs {
		step(up, &in, nil)
	}
	count, err := r.Finish()
	require.NoError(t, err)
	require.Equal(t, Count{Contenders: 1, Steps: len(inputs)}, count)

	replayed, err := ReplayFile(bytes.NewReader(file.Bytes()))
	require.NoError(t, err)
	require.Equal(t, count, replayed)

	var p Part
	require.NoError(t, gob.NewDecoder(&file).Decode(&p))
	require.Len(t, p.Steps, len(inputs))
	return p
}

func TestRecorder(t *testing.T) {
	p := record(t, config(), inputs())
	last := &p.Steps[len(p.Steps)-1]
	require.Equal(t, []contender.Output{{Kind: contender.Finish}}, last.Outputs)
	require.Contains(t, last.String(), "input {Replied Request{delete Name:"+own+"}")
	require.NoError(t, NewReplayer(p.Config).Replay(p.Steps))
}

// A Recorder that is given a contender with an input that was not recorded finds that the replay
// differs.
func TestRecorder_FindsAnInputThatWasNotRecorded(t *testing.T) {
	r := NewRecorder(nil)
	machine, step := r.Contender(config())
	for i, in := range inputs() {
		if i == 3 {
			machine.Step(up, &in, nil)
		} else {
			step(up, &in, nil)
		}
	}
	_, err := r.Finish()
	require.ErrorContains(t, err, "contender 1 in /lock: step 3: ")
}

// If anything in a record is changed, the replay reports the step.
func TestReplay_ReportsTheChangedStep(t *testing.T) {
	for name, c := range map[string]struct {
		change func(steps []Step)
		want   string
	}{
		"kind of an output":      {func(s []Step) { s[0].Outputs[0].Kind = contender.Stop }, "step 0: the outputs differ"},
		"name in an output":      {func(s []Step) { s[3].Outputs[0].Request.Name = ahead }, "step 3: the outputs differ"},
		"missing output":         {func(s []Step) { s[5].Outputs = s[5].Outputs[1:] }, "step 5: the outputs differ"},
		"error in an output":     {func(s []Step) { s[8].Outputs[0].State.Err = io.ErrUnexpectedEOF }, "step 8: the outputs differ"},
		"input":                  {func(s []Step) { s[7].Input.Event = contender.Changed }, "step 7: the outputs differ"},
		"error in an input":      {func(s []Step) { s[1].Input.Reply.Err = io.EOF }, "step 1: the outputs differ"},
		"state of the lease":     {func(s []Step) { s[7].Conn.Session = 2 }, "step 7: the outputs differ"},
		"answer":                 {func(s []Step) { s[4].Answers[0].Yes = false }, "step 5: the outputs differ"},
		"argument of the policy": {func(s []Step) { s[4].Answers[0].Name = own }, "step 4: the replay calls"},
		"missing answer":         {func(s []Step) { s[4].Answers = nil }, "step 4: the replay calls"},
		"additional answer":      {func(s []Step) { s[5].Answers = []Answer{{Func: "Blocks"}} }, "step 5: the replay does not call"},
	} {
		t.Run(name, func(t *testing.T) {
			p := record(t, config(), inputs())
			c.change(p.Steps)
			err := NewReplayer(p.Config).Replay(p.Steps)
			require.ErrorContains(t, err, c.want)
			t.Log(err)
		})
	}
}

func TestCheck(t *testing.T) {
	cfg := config()
	machine := contender.New(cfg)
	var steps []Step
	for _, in := range inputs() {
		steps = append(steps, Step{Conn: up, Input: copyInput(in), Outputs: machine.Step(up, &in, nil)})
	}
	require.NoError(t, Check(cfg, steps))
	steps[3].Conn.Up = false
	steps[8].Outputs[0].State.Err = io.EOF
	require.ErrorContains(t, Check(cfg, steps), "step 8: the outputs differ")
}

func TestReplayFile_TruncatedFile(t *testing.T) {
	var file bytes.Buffer
	r := NewRecorder(&file)
	_, step := r.Contender(config())
	step(up, &inputs()[0], nil)
	_, err := r.Finish()
	require.NoError(t, err)
	_, err = ReplayFile(bytes.NewReader(file.Bytes()[:file.Len()-1]))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// A policy may depend on what the contender does not know: its answers are a part of the record.
func TestReplay_PolicyWithAState(t *testing.T) {
	calls := 0
	admit := func(contender.Listing) contender.Admission {
		calls++
		if calls > 1 {
			return contender.Admission{Err: errors.New("over the limit")}
		}
		return contender.Admission{Any: true}
	}
	script := inputs()[:5]
	script = append(script, script[4])
	p := record(t, &contender.Config{Policy: contender.Policy{Admit: admit}, Naming: contender.CuratorLock}, script)
	require.Equal(t, 2, calls)
	require.NoError(t, NewReplayer(p.Config).Replay(p.Steps))
}

// A part is replayed and dropped long before a contender that never finishes.
func TestRecorder_LimitsTheMemory(t *testing.T) {
	var file bytes.Buffer
	r := NewRecorder(&file)
	_, step := r.Contender(config())
	step(up, &contender.Input{Kind: contender.Start}, nil)
	for range 3 * partSteps {
		step(up, &contender.Input{Kind: contender.ConnChanged}, nil)
	}
	require.Equal(t, 3*partSteps, r.count.Steps)
	listing := inputs()[4]
	listing.Reply.Names = make([]string, partNames)
	step(up, &listing, nil)
	require.Equal(t, 3*partSteps+2, r.count.Steps, "a long listing")
}

func TestError(t *testing.T) {
	err := recorded(fmt.Errorf("read: %w", errors.Join(zk.ErrNoAuth, fmt.Errorf("second: %w", io.EOF))))
	require.EqualError(t, err, "read: "+zk.ErrNoAuth.Error()+"\nsecond: EOF")
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.ErrorIs(t, err, io.EOF)
	require.NotErrorIs(t, err, zk.ErrNoNode)
	require.Equal(t, err, recorded(err))
	require.ErrorIs(t, recorded(fmt.Errorf("again: %w", err)), io.EOF)
	require.NoError(t, recorded(nil))
}

// A field that is added to contender.Config belongs in Config.
func TestConfig_HasAllFields(t *testing.T) {
	cfg := contender.Config{
		Dir: "/lock", Naming: contender.Kazoo, Tombstone: "DONE", CanMakeQueue: true, QueueMayVanish: true, QueueCzxid: 1, QueueSession: 2,
		Lookahead: true, Patience: time.Second, Standby: time.Minute,
	}
	recorded := configOf(&cfg)
	require.Equal(t, &cfg, recorded.withPolicy(contender.Policy{Admit: func(contender.Listing) contender.Admission { panic("no") }}))
	v := reflect.ValueOf(cfg)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Policy" {
			require.False(t, v.Field(i).IsZero(), "this test must set %s", name)
		}
	}
	require.Equal(t, 3, reflect.TypeFor[contender.Policy]().NumField())
}
