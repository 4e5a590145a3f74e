package cmdline

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// The exit codes of the commands elector and raftlog. Each code means the same in both commands. docs/elector.md and
// docs/raftlog.md document the codes.
const (
	OK          = 0
	Failed      = 1  // any error without an exit code of its own; the command had no effect
	Usage       = 2  // usage error; the command had no effect
	Unclean     = 3  // elector run: processes that the begin command started may still run
	Permanent   = 4  // a retry is pointless: election ended, access denied, files damaged, a fault
	NoLeader    = 5  // there is no leader, or this instance was not elected in time
	NotLeft     = 6  // elector resign, transfer: the candidate has not left, or does not lead, in time
	OtherLeader = 7  // elector status --is-leader: another candidate leads
	Identity    = 9  // raftlog serve, recover: the peer must not participate with its data
	Missing     = 10 // raftlog config: the peer to delete does not exist
	Exists      = 11 // raftlog config: the peer to add exists
	Unknown     = 12 // raftlog: it is unknown whether the update was or will be applied
	Nothing     = 13 // raftlog compact: the snapshot contains the entry already

	NotExecutable = 126 // elector run: the program cannot be executed
	NotFound      = 127 // elector run: the program was not found
)

// Error is an error with an exit code. If Err is nil, the command prints no message.
type Error struct {
	Code int
	Err  error
}

// Errorf returns an [Error] whose message is formatted as by fmt.Errorf.
func Errorf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// PrintError prints an error as one line that begins with the name of the program, which is not repeated if it is
// the name of a library as well. It prints nothing for nil, and for an [Error] without a message.
func PrintError(w io.Writer, program string, err error) {
	if withCode, ok := errors.AsType[*Error](err); err == nil || ok && withCode.Err == nil {
		return
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, program+": ")
	}
	fmt.Fprintf(w, "%s: %s\n", program, Printable(strings.Join(lines, "; ")))
}
