package cmdline

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSignals_SecondSignalEndsProcess checks that signals within one second count as one request to stop, that a
// later signal ends the process immediately, and that a signal that is forwarded to the program does not stop the
// command itself.
func TestSignals_SecondSignalEndsProcess(t *testing.T) {
	for name, c := range map[string]struct {
		forward bool
		signals []syscall.Signal
		pauses  []time.Duration // the pauses before each signal
		want    []string
		code    int
	}{
		"two at the same time": {signals: []syscall.Signal{15, 15}, pauses: []time.Duration{0, 0}, want: []string{"stop 15"}},
		"TERM and INT":         {signals: []syscall.Signal{15, 2, 2}, pauses: []time.Duration{0, sameRequestPeriod / 2, sameRequestPeriod/2 - 1}, want: []string{"stop 15"}},
		"impatient":            {signals: []syscall.Signal{15, 15, 2}, pauses: []time.Duration{0, 0, sameRequestPeriod}, want: []string{"stop 15", "exit 2"}, code: 130},
		"HUP":                  {signals: []syscall.Signal{1, 3}, pauses: []time.Duration{0, 0}, want: []string{"stop 1"}},
		"forwarded":            {forward: true, signals: []syscall.Signal{1, 1, 15, 3}, pauses: make([]time.Duration, 4), want: []string{"forward 1", "forward 1", "stop 15", "forward 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				code := 0
				record := func(what string) func(os.Signal) {
					return func(s os.Signal) { got = append(got, fmt.Sprintf("%s %d", what, s)) }
				}
				s := Signals{Stop: record("stop"), Exit: record("exit")}
				if c.forward {
					s.Forward = record("forward")
				}
				signals, quit := make(chan os.Signal), make(chan struct{})
				go s.serve(signals, quit, func(c int) { code = c })
				for i, sig := range c.signals {
					time.Sleep(c.pauses[i])
					signals <- sig
				}
				close(quit)
				synctest.Wait()
				require.Equal(t, c.want, got)
				require.Equal(t, c.code, code)
			})
		})
	}
}
