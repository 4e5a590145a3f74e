package top

import (
	"context"
	"fmt"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
)

// Run shows a State, and what messages make of it, until the user quits, which returns
// nil, or ctx is done, whose cause it returns, or the terminal is gone, with its error. The
// screen is initialised, and the caller's to finish. Run belongs to the goroutine that calls it, and starts none.
func Run(ctx context.Context, screen tcell.Screen, s State, messages <-chan Message) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	width, height := screen.Size()
	s = s.Update(Size{width, height})
	for {
		draw(screen, s.View())
		var m Message
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-second.C:
			m = Tick{now}
		case m = <-messages:
		case event := <-screen.EventQ():
			m = translate(event)
			switch event := event.(type) {
			case *tcell.EventError:
				return fmt.Errorf("the terminal is gone: %w", event)
			case *tcell.EventResize:
				// The event may come from the terminal, and some tell their width as
				// their height (tmux 3.3); the screen asks the operating system.
				screen.Sync() // whatever the terminal has made of the rows
				width, height = screen.Size()
				m = Size{width, height}
			}
		}
		if s = s.Update(m); s.Quit() {
			return nil
		}
	}
}

// translate returns the message for what the terminal tells; nil for none.
func translate(event tcell.Event) Message {
	press, ok := event.(*tcell.EventKey)
	if !ok || !press.Pressed() {
		return nil
	}
	if key, ok := keys[press.Key()]; ok {
		return key
	}
	if press.Key() == tcell.KeyRune {
		return runes[press.Str()]
	}
	return KeyNone
}

var keys = map[tcell.Key]Key{
	tcell.KeyUp: KeyUp, tcell.KeyDown: KeyDown, tcell.KeyHome: KeyHome, tcell.KeyEnd: KeyEnd,
	tcell.KeyTab: KeySwitch, tcell.KeyBacktab: KeySwitch, tcell.KeyEnter: KeySwitch,
	tcell.KeyEscape: KeyBack, tcell.KeyCtrlC: KeyQuit,
}

var runes = map[string]Key{"k": KeyUp, "j": KeyDown, "?": KeyHelp, "h": KeyHelp, "q": KeyQuit}

// looks uses colours and attributes of which any may be missing: a terminal without
// colours, or NO_COLOR, which the terminal library honours, leaves the attributes.
var looks = map[Look]tcell.Style{
	Plain:    tcell.StyleDefault,
	Title:    tcell.StyleDefault.Bold(true),
	Header:   tcell.StyleDefault.Underline(true),
	Selected: tcell.StyleDefault.Reverse(true),
	Leading:  tcell.StyleDefault.Foreground(color.Green),
	Dim:      tcell.StyleDefault.Dim(true),
	Alarm:    tcell.StyleDefault.Bold(true).Foreground(color.Red),
}

func draw(screen tcell.Screen, rows []Row) {
	for y, row := range rows {
		screen.PutStrStyled(0, y, row.Text, looks[row.Look])
	}
	screen.HideCursor()
	screen.Show()
}
