package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
)

// Look is how a row looks.
type Look int

// The looks of rows. None of them is needed to understand the screen.
const (
	Plain Look = iota
	Title
	Header
	Selected
	Leading
	Dim
	Alarm
)

// Row is one row of the screen, of plain text that is no wider than it.
type Row struct {
	Text string
	Look Look
}

// The least that anything can be shown on.
const (
	minWidth  = 40
	minHeight = 10
)

// View returns the rows of the screen, as many as it is high.
func (s State) View() []Row {
	var rows []Row
	switch {
	case s.width < minWidth || s.height < minHeight:
		rows = []Row{{fmt.Sprintf("needs %dx%d", minWidth, minHeight), Alarm}}
	case s.help:
		rows = append([]Row{s.title(), {}}, helpRows...)
	default:
		rows = s.screen()
	}
	for len(rows) < s.height {
		rows = append(rows, Row{})
	}
	rows = rows[:s.height]
	for i := range rows {
		rows[i].Text = fit(rows[i].Text, s.width)
	}
	return rows
}

var helpRows = []Row{
	{"up, down, home, end   move (k and j too)", Plain},
	{"tab, enter            between the elections and the line of the selected one", Plain},
	{"esc                   back to the elections", Plain},
	{"?                     this text", Plain},
	{"q, Ctrl-C             quit", Plain},
	{"", Plain},
	{"LEADS    for how long the leader leads. >5m: longer than elector top runs", Plain},
	{"WAIT     how many stand behind the leader", Plain},
	{"TOKEN    the fencing token of the leadership", Plain},
	{"JOINED   for how long the candidate stands in line", Plain},
	{"", Plain},
	{"The first in line leads, or is about to learn that it does. A leader marked with", Plain},
	{"a ? is what was known when the backend answered last.", Plain},
	{"", Plain},
	{"any key goes back", Dim},
}

func (s State) screen() []Row {
	// Title, state, header; a blank row, the line's title and header; two rows of the
	// candidate under the cursor, and the keys.
	const frame = 9
	free := s.height - frame
	upper := min(max(1, len(s.elections)), max(1, free/2))
	lower := free - upper

	rows := []Row{s.title(), s.state()}
	rows = append(rows, s.electionRows(upper)...)
	rows = append(rows, Row{})
	rows = append(rows, s.lineRows(lower)...)
	rows = append(rows, s.candidateRows()...)
	keys := "up/down select   tab line   ? help   q quit"
	if s.inLine {
		keys = "up/down select   tab elections   ? help   q quit"
	}
	return append(rows, Row{keys, Dim})
}

func (s State) title() Row {
	clock := s.now.Format("15:04:05")
	left := clip("elector top  "+s.about, s.width-len(clock)-2)
	return Row{pad(left, s.width-len(clock)) + clock, Title}
}

// state says how things stand altogether, or what is wrong.
func (s State) state() Row {
	for _, e := range s.elections {
		if e.err == nil {
			continue
		}
		since := e.heard
		if since.IsZero() {
			since = s.began
		}
		return Row{fmt.Sprintf("no answer for %s: %s", age(s.now.Sub(since)), strings.ReplaceAll(e.err.Error(), "\n", "; ")), Alarm}
	}
	if s.note != "" {
		return Row{s.note, Alarm}
	}
	candidates, headless := 0, 0
	for _, e := range s.elections {
		candidates += len(e.line)
		if !e.heard.IsZero() && !e.gone && len(e.line) == 0 {
			headless++
		}
	}
	text := plural(len(s.elections), "election") + ", " + plural(candidates, "candidate")
	if headless > 0 {
		text += fmt.Sprintf(", %d without a leader", headless)
	}
	return Row{text, Plain}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// electionRows is the table of elections, with a header.
func (s State) electionRows(height int) []Row {
	token := len("TOKEN")
	for _, e := range s.elections {
		if len(e.line) > 0 {
			token = max(token, len(strconv.FormatInt(e.leader().Token, 10)))
		}
	}
	const leads, waiting = 8, 5
	names := s.width - 2 - token - leads - waiting - 4*2
	name := max(8, names*11/20)
	widths := []int{name, max(6, names-name), -token, -leads, -waiting}
	rows := []Row{{"  " + columns(widths, "ELECTION", "LEADER", "TOKEN", "LEADS", "WAIT"), Header}}
	for i := first(s.selected, height, len(s.elections)); i < len(s.elections) && len(rows) <= height; i++ {
		e := s.elections[i]
		cells := []string{e.name, "", "-", "-", "-"}
		row := Row{Look: Plain}
		switch {
		case e.gone:
			cells[1], row.Look = "(does not exist)", Dim
		case e.heard.IsZero():
			cells[1], row.Look = "...", Dim
		case len(e.line) == 0:
			cells[1], cells[4], row.Look = "(nobody)", "0", Alarm
		default:
			l := e.leader()
			led := age(s.now.Sub(e.leads))
			if e.earlier {
				led = ">" + led
			}
			cells[1], cells[2], cells[3], cells[4] = l.Name, strconv.FormatInt(l.Token, 10), led, strconv.Itoa(len(e.line)-1)
		}
		if e.err != nil && !e.heard.IsZero() {
			cells[1], row.Look = "? "+cells[1], Dim
		}
		mark := "  "
		if i == s.selected {
			mark = "> "
			if !s.inLine {
				row.Look = Selected
			}
		}
		row.Text = mark + columns(widths, cells...)
		rows = append(rows, row)
	}
	for len(rows) <= height {
		rows = append(rows, Row{"  no election found yet", Dim})
	}
	return rows
}

// lineRows is the line of the selected election, with a title and a header.
func (s State) lineRows(height int) []Row {
	line := s.line()
	title := ""
	if len(s.elections) > 0 {
		title = s.elections[s.selected].name + ": " + plural(len(line), "candidate") + " in order"
	}
	session, id := len("SESSION"), len("ID")
	for _, c := range line {
		session, id = max(session, len(c.Session)), max(id, len(lastElement(c.ID)))
	}
	const number, joined, least, room = 4, 8, 19, 70
	if s.width < room {
		session = 0 // there is no room for it
	}
	names := s.width - 2 - number - joined - session - 4*2
	id = max(least, min(id, names-20))
	widths := []int{-number, max(6, names-id), -joined, session, id}
	rows := []Row{{title, Title}, {"  " + columns(widths, "#", "NAME", "JOINED", "SESSION", "ID"), Header}}
	for i := first(s.cursor, height, len(line)); i < len(line) && len(rows) < height+2; i++ {
		c := line[i]
		joined := "-"
		if !c.Since.IsZero() {
			joined = age(s.now.Sub(c.Since))
		}
		row := Row{Look: Plain}
		if i == 0 {
			row.Look = Leading
		}
		mark := "  "
		if s.inLine && i == s.cursor {
			mark, row.Look = "> ", Selected
		}
		row.Text = mark + columns(widths, strconv.Itoa(i+1), c.Name, joined, c.Session, clipHead(lastElement(c.ID), id))
		rows = append(rows, row)
	}
	for len(rows) < height+2 {
		rows = append(rows, Row{})
	}
	return rows
}

// candidateRows is the candidate under the cursor, in full.
func (s State) candidateRows() []Row {
	line := s.line()
	if !s.inLine || len(line) == 0 {
		return []Row{{}, {}}
	}
	c := line[s.cursor]
	return []Row{{fmt.Sprintf("%s, token %d", c.Name, c.Token), Dim}, {lastElement(c.ID), Dim}}
}

func lastElement(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// first is the first of n rows to show on a height, so that row at is seen.
func first(at, height, n int) int {
	return max(0, min(at-height/2, n-height))
}

// columns puts cells into columns, two spaces apart. A negative width aligns to the right;
// one of zero leaves the cell out.
func columns(widths []int, cells ...string) string {
	var b strings.Builder
	for i, cell := range cells {
		if widths[i] == 0 {
			continue
		}
		if i > 0 {
			b.WriteString("  ")
		}
		if w := widths[i]; w < 0 {
			cell = clip(cell, -w)
			b.WriteString(strings.Repeat(" ", -w-displaywidth.String(cell)) + cell)
		} else {
			b.WriteString(pad(clip(cell, w), w))
		}
	}
	return b.String()
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-displaywidth.String(text)))
}

// fit makes a text as wide as the screen.
func fit(text string, width int) string { return pad(clip(text, width), width) }

// clip shortens a text to a width. Control characters, which others choose, are not shown.
func clip(text string, width int) string {
	text = printable(text)
	if displaywidth.String(text) <= width {
		return text
	}
	if width <= 3 {
		return displaywidth.TruncateString(text, max(0, width), "")
	}
	return displaywidth.TruncateString(text, width, "...")
}

// clipHead is clip that keeps the end.
func clipHead(text string, width int) string {
	text = printable(text)
	for displaywidth.String(text) > width {
		text = strings.TrimPrefix(text, "...")
		_, size := firstRune(text)
		text = "..." + text[size:]
	}
	return text
}

func firstRune(text string) (r rune, size int) {
	for i, c := range text {
		if i > 0 {
			return r, i
		}
		r = c
	}
	return r, len(text)
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// age gives a time as a person wants to read it, in at most seven characters.
func age(d time.Duration) string {
	d = max(0, d)
	s := int(d / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/(24*3600), s/3600%24)
}
