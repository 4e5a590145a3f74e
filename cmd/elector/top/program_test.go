package top

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	"github.com/stretchr/testify/require"
)

// terminal is a program on a terminal that is emulated.
type terminal struct {
	*testing.T
	term     vt.MockTerm
	messages chan Message
	done     chan error
	requests chan Request
	stop     context.CancelCauseFunc
}

func show(t *testing.T, elections ...string) *terminal {
	term := vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 24})
	return showBy(t, term, term, elections...)
}

// showBy is show by a connection to the terminal.
func showBy(t *testing.T, term vt.MockTerm, tty tcell.Tty, elections ...string) *terminal {
	t.Setenv("TERM", "xterm-256color")
	screen, err := tcell.NewTerminfoScreenFromTty(tty)
	require.NoError(t, err)
	require.NoError(t, screen.Init())
	ctx, stop := context.WithCancelCause(context.Background())
	v := &terminal{t, term, make(chan Message), make(chan error, 1), make(chan Request, 1), stop}
	go func() {
		v.done <- Run(ctx, screen, New("test", began, elections...), v.messages, func(r Request) { v.requests <- r })
		screen.Fini()
		close(v.done)
	}()
	t.Cleanup(func() { stop(nil); <-v.done })
	return v
}

// shows waits until there is a text on the screen, and returns the row and its column.
func (v *terminal) shows(text string) (x, y int) {
	v.Helper()
	limit := time.After(10 * time.Second)
	for {
		size, err := v.term.WindowSize()
		require.NoError(v, err)
		for y := range size.Height {
			var b strings.Builder
			for x := range size.Width {
				b.WriteString(v.cell(x, y).C)
			}
			if i := strings.Index(b.String(), text); i >= 0 {
				return i, y
			}
		}
		select {
		case v.messages <- Tick{began}: // what came before is drawn
		case <-limit:
			require.Fail(v, "never shown: "+text)
		}
	}
}

func (v *terminal) cell(x, y int) vt.Cell {
	return v.term.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)})
}

func (v *terminal) types(text string) { v.term.SendRaw([]byte(text)) }

func TestRun(t *testing.T) {
	v := show(t, "/jobs/report", "/jobs/clean")
	v.messages <- Heard{after(1), "/jobs/report", []Candidate{one, four}}
	v.shows("/jobs/report: 2 candidates in order")
	v.types("\x1b[B")
	v.shows("> /jobs/clean")
	v.types("k\r")
	v.shows(">    1  web-1")
	v.types("j")
	v.shows("_c_0f1e2d3c-4b5a-8e1e-9786-a5b4c3d2e104-latch-0000000004")
	v.types("?")
	v.shows("any key returns")
	v.types(" ")
	v.shows(">    2  web-4")
	v.term.SetSize(vt.Coord{X: 100, Y: 12})
	v.messages <- Tick{after(5)}
	v.shows("web-1")
	v.types("ry")
	require.Equal(t, Request{"/jobs/report", four}, <-v.requests)
	v.types("\x1b[A\t/clean\x7f\r")
	v.shows("1 with \"clea\"")
	v.types("q")
	require.NoError(t, <-v.done)
}

func TestRunEndsWithItsContext(t *testing.T) {
	v := show(t)
	v.stop(context.DeadlineExceeded)
	require.ErrorIs(t, <-v.done, context.DeadlineExceeded)
}

func TestCtrlC(t *testing.T) {
	v := show(t)
	v.types("\x03")
	require.NoError(t, <-v.done)
}

// lost is a connection on which nothing more is read once it is gone.
type lost struct {
	vt.MockTerm
	gone chan struct{}
}

func (l *lost) Read(p []byte) (int, error) {
	n, err := l.MockTerm.Read(p)
	select {
	case <-l.gone:
		return 0, io.EOF
	default:
		return n, err
	}
}

// TestTerminalGoes: without a terminal the user cannot quit.
func TestTerminalGoes(t *testing.T) {
	term := vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 24})
	l := &lost{term, make(chan struct{})}
	v := showBy(t, term, l, "/a")
	v.shows("/a")
	close(l.gone)
	v.types("?")
	select {
	case err := <-v.done:
		require.ErrorIs(t, err, io.EOF)
	case <-time.After(10 * time.Second):
		require.Fail(t, "it goes on without a terminal")
	}
}

// TestNoColor: NO_COLOR takes the colours, and nothing else.
func TestNoColor(t *testing.T) {
	for _, off := range []string{"", "1"} {
		t.Setenv("NO_COLOR", off)
		v := show(t, "/a")
		v.messages <- Heard{after(1), "/a", []Candidate{one, four}}
		x, y := v.shows("     1  web-1")
		leading, plain := v.cell(x+8, y).S.Fg(), v.cell(x+8, y+1).S.Fg()
		require.Equal(t, off != "", leading == plain, "%v %v", leading, plain)
		_, y = v.shows("> /a")
		require.NotEqual(t, v.cell(0, y+1).S.Attr(), v.cell(0, y).S.Attr(), "selected")
		v.types("q")
		require.NoError(t, <-v.done)
	}
}
