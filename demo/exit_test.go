//go:build unix

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDemo_ExitCodeTellsOutcome checks that the exit codes of the demo tell success, failure, wrong usage
// and an interrupt apart.
func TestDemo_ExitCodeTellsOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		line string // the test waits for this line of the output before it calls act
		act  func(p *os.Process, output io.Closer) error
		code int
	}{
		"wrong flag":    {args: "--unknown", code: 2},
		"surplus":       {args: "surplus", code: 2},
		"no server":     {args: "--zk=127.0.0.1:1", code: 1},
		"interrupted":   {line: "The leader crashes", act: func(p *os.Process, _ io.Closer) error { return p.Signal(os.Interrupt) }, code: 130},
		"hang-up":       {line: "The leader crashes", act: func(p *os.Process, _ io.Closer) error { return p.Signal(syscall.SIGHUP) }, code: 130},
		"output closed": {line: "The leader crashes", act: func(_ *os.Process, output io.Closer) error { return output.Close() }, code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], append([]string{"--pause=0s"}, strings.Fields(c.args)...)...)
			cmd.Env = append(os.Environ(), commandVariable+"=1")
			output, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines := bufio.NewScanner(output)
			for lines.Scan() {
				if c.act != nil && strings.Contains(lines.Text(), c.line) {
					require.NoError(t, c.act(cmd.Process, output))
				}
			}
			_ = cmd.Wait()
			require.Equal(t, c.code, cmd.ProcessState.ExitCode())
		})
	}
}
