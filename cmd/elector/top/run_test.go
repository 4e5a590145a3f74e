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

// terminal is an emulated terminal on which a test calls Run.
type terminal struct {
	*testing.T
	term     vt.MockTerm
	messages chan Message
	done     chan error   // receives the result of Run
	requests chan Request // receives the requests that the user has confirmed
	stop     context.CancelCauseFunc
}

func startRun(t *testing.T, elections ...string) *terminal {
	term := vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 24})
	return startRunOn(t, term, term, elections...)
}

// startRunOn starts Run like startRun, on a screen that uses tty, which is a connection to term.
func startRunOn(t *testing.T, term vt.MockTerm, tty tcell.Tty, elections ...string) *terminal {
	t.Setenv("TERM", "xterm-256color")
	screen, err := tcell.NewTerminfoScreenFromTty(tty)
	require.NoError(t, err)
	require.NoError(t, screen.Init())
	ctx, stop := context.WithCancelCause(context.Background())
	v := &terminal{t, term, make(chan Message), make(chan error, 1), make(chan Request, 1), stop}
	go func() {
		v.done <- Run(ctx, screen, New("test", start, elections...), v.messages, func(r Request) { v.requests <- r })
		screen.Fini()
		close(v.done)
	}()
	t.Cleanup(func() { stop(nil); <-v.done })
	return v
}

// waitForText waits until the screen contains a text, and returns the position of that text.
func (v *terminal) waitForText(text string) (x, y int) {
	v.Helper()
	limit := time.After(10 * time.Second)
	for {
		size, err := v.term.WindowSize()
		require.NoError(v, err)
		for y := range size.Height {
			var b strings.Builder
			for x := range size.Width {
				b.WriteString(v.cellAt(x, y).C)
			}
			if i := strings.Index(b.String(), text); i >= 0 {
				return i, y
			}
		}
		select {
		case v.messages <- Tick{start}: // when Run receives this message, it has drawn the earlier ones
		case <-limit:
			require.Fail(v, "not shown: "+text)
		}
	}
}

func (v *terminal) cellAt(x, y int) vt.Cell {
	return v.term.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)})
}

func (v *terminal) typeKeys(text string) { v.term.SendRaw([]byte(text)) }

// TestRun_KeysChangeScreen checks that keys and messages change the screen, and that Run passes on the requests that
// the user has confirmed.
func TestRun_KeysChangeScreen(t *testing.T) {
	v := startRun(t, "/jobs/report", "/jobs/clean")
	v.messages <- Listed{secondsAfterStart(1), "/jobs/report", []Candidate{one, four}}
	v.waitForText("/jobs/report: 2 candidates in order")
	v.typeKeys("\x1b[B")
	v.waitForText("> /jobs/clean")
	v.typeKeys("k\r")
	v.waitForText(">    1  web-1")
	v.typeKeys("j")
	v.waitForText("_c_0f1e2d3c-4b5a-8e1e-9786-a5b4c3d2e104-latch-0000000004")
	v.typeKeys("?")
	v.waitForText("any key returns")
	v.typeKeys(" ")
	v.waitForText(">    2  web-4")
	v.term.SetSize(vt.Coord{X: 100, Y: 12})
	v.messages <- Tick{secondsAfterStart(5)}
	v.waitForText("web-1")
	v.typeKeys("ry")
	require.Equal(t, Request{"/jobs/report", four}, <-v.requests)
	v.typeKeys("\x1b[A\t/clean\x7f\r")
	v.waitForText("1 with \"clea\"")
	v.typeKeys("q")
	require.NoError(t, <-v.done)
}

// TestRun_ReturnsCauseOfContext checks that Run returns the cause for which its context was cancelled.
func TestRun_ReturnsCauseOfContext(t *testing.T) {
	v := startRun(t)
	v.stop(context.DeadlineExceeded)
	require.ErrorIs(t, <-v.done, context.DeadlineExceeded)
}

// TestRun_ReturnsAfterCtrlC checks that Run returns without an error after the user has typed Ctrl-C.
func TestRun_ReturnsAfterCtrlC(t *testing.T) {
	v := startRun(t)
	v.typeKeys("\x03")
	require.NoError(t, <-v.done)
}

// closableTTY is a connection to a terminal whose Read returns io.EOF after the channel closed is closed.
type closableTTY struct {
	vt.MockTerm
	closed chan struct{}
}

func (l *closableTTY) Read(p []byte) (int, error) {
	n, err := l.MockTerm.Read(p)
	select {
	case <-l.closed:
		return 0, io.EOF
	default:
		return n, err
	}
}

// TestRun_FailsWithoutTerminal checks that Run returns an error when it loses its terminal, because the user could
// not quit any more.
func TestRun_FailsWithoutTerminal(t *testing.T) {
	term := vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 24})
	l := &closableTTY{term, make(chan struct{})}
	v := startRunOn(t, term, l, "/a")
	v.waitForText("/a")
	close(l.closed)
	v.typeKeys("?")
	select {
	case err := <-v.done:
		require.ErrorIs(t, err, io.EOF)
	case <-time.After(10 * time.Second):
		require.Fail(t, "Run continues without a terminal")
	}
}

// TestRun_OmitsColorsIfNoColorIsSet checks that the environment variable NO_COLOR removes the colours from the
// screen, but no other attributes.
func TestRun_OmitsColorsIfNoColorIsSet(t *testing.T) {
	for _, off := range []string{"", "1"} {
		t.Setenv("NO_COLOR", off)
		v := startRun(t, "/a")
		v.messages <- Listed{secondsAfterStart(1), "/a", []Candidate{one, four}}
		x, y := v.waitForText("     1  web-1")
		leading, plain := v.cellAt(x+8, y).S.Fg(), v.cellAt(x+8, y+1).S.Fg()
		require.Equal(t, off != "", leading == plain, "%v %v", leading, plain)
		_, y = v.waitForText("> /a")
		require.NotEqual(t, v.cellAt(0, y+1).S.Attr(), v.cellAt(0, y).S.Attr(), "selected")
		v.typeKeys("q")
		require.NoError(t, <-v.done)
	}
}
