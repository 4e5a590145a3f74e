package contender

// TracedStep is one call of Step.
type TracedStep struct {
	Conn    Conn
	Input   Input
	Outputs []Output
}

// Replay passes the inputs of steps to a new contender. It returns an error if an output differs. It
// is trace.Check, which replaylink_test.go assigns, because package trace imports this package.
var Replay func(cfg *Config, steps []TracedStep) error
