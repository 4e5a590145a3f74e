package contender_test

import (
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender/trace"
)

func init() {
	contender.Replay = func(cfg *contender.Config, traced []contender.TracedStep) error {
		var steps []trace.Step
		for _, s := range traced {
			steps = append(steps, trace.Step{Conn: s.Conn, Input: s.Input, Outputs: s.Outputs})
		}
		return trace.Check(cfg, steps)
	}
}
