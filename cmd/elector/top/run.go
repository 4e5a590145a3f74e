package top

import (
	"context"
	"fmt"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
)

// Run shows a State on the screen and applies messages and keys to it. It returns nil if the user quits, the cause of
// ctx if ctx is done, and an error if the terminal fails. The caller initializes the screen before the call, and
// finishes it afterwards. Run calls resign with each request that the user has confirmed; resign must not block. Run
// does not start goroutines.
func Run(ctx context.Context, screen tcell.Screen, s State, messages <-chan Message, resign func(Request)) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	width, height := screen.Size()
	s = s.Update(Size{width, height})
	for {
		drawRows(screen, s.View())
		var m Message
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-second.C:
			m = Tick{now}
		case m = <-messages:
		case event := <-screen.EventQ():
			m = keyMessage(event)
			switch event := event.(type) {
			case *tcell.EventError:
				return fmt.Errorf("the terminal has failed: %w", event)
			case *tcell.EventResize:
				// Do not use the size in the event, which may come from the terminal: some terminals
				// report a wrong height (tmux 3.3). The screen asks the operating system.
				screen.Sync() // draw everything again, because the terminal may have wrapped the rows
				width, height = screen.Size()
				m = Size{width, height}
			}
		}
		s = s.Update(m)
		if s.Quit() {
			return nil
		}
		var request *Request
		if s, request = s.TakeRequest(); request != nil {
			resign(*request)
		}
	}
}

// keyMessage returns the message for an event of the terminal, or nil if the event is not a key.
func keyMessage(event tcell.Event) Message {
	press, ok := event.(*tcell.EventKey)
	if !ok || !press.Pressed() {
		return nil
	}
	if key, ok := keys[press.Key()]; ok {
		return key
	}
	if press.Key() == tcell.KeyRune {
		return Typed{press.Str()}
	}
	return KeyNone
}

var keys = map[tcell.Key]Key{
	tcell.KeyUp: KeyUp, tcell.KeyDown: KeyDown, tcell.KeyHome: KeyHome, tcell.KeyEnd: KeyEnd,
	tcell.KeyTab: KeySwitch, tcell.KeyBacktab: KeySwitch, tcell.KeyEnter: KeySwitch,
	tcell.KeyBackspace: KeyErase, tcell.KeyDelete: KeyErase,
	tcell.KeyEscape: KeyBack, tcell.KeyCtrlC: KeyQuit,
}

// styles contains the attributes and colours of each Style. If NO_COLOR is set or the terminal has no
// colours, the terminal library omits the colours.
var styles = map[Style]tcell.Style{
	Plain:   tcell.StyleDefault,
	Title:   tcell.StyleDefault.Bold(true),
	Header:  tcell.StyleDefault.Underline(true),
	Leading: tcell.StyleDefault.Foreground(color.Green),
	Dim:     tcell.StyleDefault.Dim(true),
	Warning: tcell.StyleDefault.Foreground(color.Yellow),
	Alarm:   tcell.StyleDefault.Bold(true).Foreground(color.Red),
}

func drawRows(screen tcell.Screen, rows []Row) {
	for y, row := range rows {
		x := 0
		for _, span := range row {
			screen.PutStrStyled(x, y, span.Text, styles[span.Style].Reverse(span.Selected))
			x += displaywidth.String(span.Text)
		}
	}
	screen.HideCursor()
	screen.Show()
}
