package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
)

// Look is a style of text.
type Look int

// The looks. The text is sufficient without them.
const (
	Plain Look = iota
	Title
	Header
	Leading
	Dim
	Warning
	Alarm
)

// Span is plain text in one style.
type Span struct {
	Text     string
	Look     Look
	Selected bool
}

// Row is one row of the screen. It is as wide as the screen.
type Row []Span

// The minimum size of the screen.
const (
	minWidth  = 40
	minHeight = 10
)

// With a width of at least wide, the recent changes are on the right; otherwise, with a height of
// at least tall, they are at the bottom.
const (
	wide = 120
	tall = 20
)

// View returns the rows of the screen, as many as its height.
func (s State) View() []Row {
	var rows []Row
	switch {
	case s.width < minWidth || s.height < minHeight:
		rows = []Row{{{Text: fmt.Sprintf("needs %dx%d", minWidth, minHeight), Look: Alarm}}}
	case s.help:
		rows = append([]Row{s.title(), {}}, helpRows...)
	default:
		rows = s.screen()
	}
	for len(rows) < s.height {
		rows = append(rows, nil)
	}
	rows = rows[:s.height]
	for i := range rows {
		rows[i] = rows[i].fit(s.width)
	}
	return rows
}

// fit makes a row as wide as the screen.
func (r Row) fit(width int) Row {
	var fitted Row
	for _, span := range r {
		span.Text = clip(span.Text, width)
		width -= displaywidth.String(span.Text)
		fitted = append(fitted, span)
	}
	if width > 0 || len(fitted) == 0 {
		rest := Span{Text: strings.Repeat(" ", width)}
		if n := len(fitted); n > 0 {
			rest.Look, rest.Selected = fitted[n-1].Look, fitted[n-1].Selected
		}
		fitted = append(fitted, rest)
	}
	return fitted
}

func row(look Look, format string, args ...any) Row {
	return Row{{Text: fmt.Sprintf(format, args...), Look: look}}
}

var helpRows = func() (rows []Row) {
	for _, text := range []string{
		"up, down, home, end   move (also k and j)",
		"tab, enter            switch between the elections and the queue of the selected one",
		"esc                   return to the elections; remove the filter",
		"/                     show only elections that contain a text, or whose leader does",
		"s                     change the order of the elections",
		"r                     request the leader, or the selected candidate, to hand over",
		"?                     this text",
		"q, Ctrl-C             quit",
		"",
		"LEADS    how long the leader has led; >5m: longer than elector top runs",
		"WAIT     number of candidates behind the leader",
		"TOKEN    fencing token of the leadership",
		"JOINED   how long ago the candidate joined the queue",
		"",
		"The first candidate of a queue is the leader, or is about to learn that it is. A",
		"leader marked with ? is the last known one: the backend does not answer.",
	} {
		rows = append(rows, row(Plain, "%s", text))
	}
	return append(rows, nil, row(Dim, "any key returns"))
}()

func (s State) screen() []Row {
	if s.width < wide {
		return s.main(s.width, s.height)
	}
	panel := min(80, s.width*2/5)
	left := s.width - panel - 3
	rows := s.main(left, s.height)
	changes := s.changeRows(panel, s.height-3)
	for i := range rows {
		switch j := i - 2; { // below the title and the state, above the keys
		case i < 2 || j >= len(changes):
		default:
			rows[i] = append(append(rows[i].fit(left), Span{Text: " | ", Look: Dim}), changes[j]...)
		}
	}
	return rows
}

// main returns the rows without the changes, or with them below if there is space.
func (s State) main(width, height int) []Row {
	// The title, the state, the header; a blank row, the title and the header of the queue; two
	// rows of the selected candidate, and the keys.
	free := height - 9
	below := 0
	if s.width < wide && height >= tall {
		below = 1 + min(8, height/6)
	}
	shown := s.visible()
	upper := min(max(1, len(shown)), max(1, (free-below)/2))

	rows := []Row{s.title(), s.state(len(shown))}
	rows = append(rows, s.electionRows(shown, width, upper)...)
	rows = append(rows, nil)
	rows = append(rows, s.lineRows(width, free-below-upper)...)
	rows = append(rows, s.candidateRows()...)
	if below > 0 {
		rows = append(rows, s.changeRows(width, below)...)
	}
	return append(rows, s.keys())
}

func (s State) keys() Row {
	switch {
	case s.filtering:
		return Row{{Text: "filter: " + s.filter + "_", Look: Title}, {Text: "   enter keep   esc remove", Look: Dim}}
	case s.asking != nil:
		return row(Warning, "y/n: request %s to hand over %s", s.asking.Candidate.Name, s.asking.Election)
	}
	other := "queue"
	if s.inLine {
		other = "elections"
	}
	return row(Dim, "up/down select  tab %s  / filter  s sort  r resign  ? help  q quit", other)
}

func (s State) title() Row {
	clock := s.now.Format("15:04:05")
	left := clip("elector top  "+s.about, s.width-len(clock)-2)
	return Row{{Text: pad(left, s.width-len(clock)) + clock, Look: Title}}
}

// state summarizes the elections, or names a problem.
func (s State) state(shown int) Row {
	for _, e := range s.elections {
		if e.err == nil {
			continue
		}
		since := e.heard
		if since.IsZero() {
			since = s.began
		}
		return row(Alarm, "no answer for %s: %s", age(s.now.Sub(since)), strings.ReplaceAll(e.err.Error(), "\n", "; "))
	}
	if s.note != "" {
		return row(Alarm, "%s", s.note)
	}
	candidates, headless := 0, 0
	for _, e := range s.elections {
		candidates += len(e.line)
		if e.leaderless() {
			headless++
		}
	}
	r := row(Plain, "%s, %s", plural(len(s.elections), "election"), plural(candidates, "candidate"))
	if headless > 0 {
		r = append(r, Span{Text: fmt.Sprintf(", %d without a leader", headless), Look: Alarm})
	}
	more := ""
	if s.order != asGiven {
		more += ", sorted " + s.order.String()
	}
	if s.filter != "" {
		more += fmt.Sprintf(", %d with %q", shown, s.filter)
	}
	return append(r, Span{Text: more})
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// electionRows returns the table of elections with its header.
func (s State) electionRows(shown []election, width, height int) []Row {
	token, longest, leader := len("TOKEN"), len("ELECTION"), len("(does not exist)")
	for _, e := range shown {
		longest = max(longest, displaywidth.String(printable(e.name)))
		if len(e.line) > 0 {
			token = max(token, len(strconv.FormatInt(e.leader().Token, 10)))
			leader = max(leader, 2+displaywidth.String(printable(e.leader().Name)))
		}
	}
	const leads, waiting = 8, 5
	names := width - 2 - token - leads - waiting - 4*2
	// Each column has at most its share, or more if the other one needs less.
	name := max(8, min(longest, max(names*11/20, names-leader)))
	widths := []int{name, max(6, min(leader, names-name)), -token, -leads, -waiting}
	rows := []Row{row(Header, "  %s", columns(widths, "ELECTION", "LEADER", "TOKEN", "LEADS", "WAIT"))}
	for i := first(s.row, height, len(shown)); i < len(shown) && len(rows) <= height; i++ {
		e := shown[i]
		cells := []string{e.name, "", "-", "-", "-"}
		look := Plain
		switch {
		case e.gone:
			cells[1], look = "(does not exist)", Dim
		case e.heard.IsZero():
			cells[1], look = "...", Dim
		case len(e.line) == 0:
			cells[1], cells[4], look = "(no leader)", "0", Alarm
		default:
			l := e.leader()
			led := age(s.now.Sub(e.leads))
			if e.earlier {
				led = ">" + led
			}
			cells[1], cells[2], cells[3], cells[4] = l.Name, strconv.FormatInt(l.Token, 10), led, strconv.Itoa(len(e.line)-1)
			look = Leading
		}
		if e.err != nil && !e.heard.IsZero() {
			cells[1], look = "? "+cells[1], Warning
		}
		mark := "  "
		if i == s.row {
			mark = "> "
		}
		rest := columns(widths, cells...)
		head := pad(clip(e.name, name), name)
		selected := i == s.row && !s.inLine
		rows = append(rows, Row{
			{Text: mark + head, Look: Plain, Selected: selected},
			{Text: strings.TrimPrefix(rest, head), Look: look, Selected: selected},
		})
	}
	for len(rows) <= height {
		text := "  no election found yet"
		if len(s.elections) > 0 {
			text = "  no election matches the filter"
		}
		rows = append(rows, row(Dim, "%s", text))
	}
	return rows
}

// lineRows returns the queue of the selected election with a title and a header.
func (s State) lineRows(width, height int) []Row {
	line := s.line()
	title := ""
	if s.selected != "" {
		title = s.selected + ": " + plural(len(line), "candidate") + " in order"
	}
	session, id, longest := len("SESSION"), len("ID"), 6
	for _, c := range line {
		session, id = max(session, len(c.Session)), max(id, len(lastElement(c.ID)))
		longest = max(longest, displaywidth.String(printable(c.Name)))
	}
	const number, joined, least, room = 4, 8, 19, 70
	if width < room {
		session = 0 // there is no space for it
	}
	names := width - 2 - number - joined - session - 4*2
	id = max(least, min(id, names-min(longest, 20)))
	widths := []int{-number, max(6, min(longest, names-id)), -joined, session, id}
	rows := []Row{row(Title, "%s", title), row(Header, "  %s", columns(widths, "#", "NAME", "JOINED", "SESSION", "ID"))}
	for i := first(s.cursor, height, len(line)); i < len(line) && len(rows) < height+2; i++ {
		c := line[i]
		joined := "-"
		if !c.Since.IsZero() {
			joined = age(s.now.Sub(c.Since))
		}
		look, mark := Plain, "  "
		if i == 0 {
			look = Leading
		}
		selected := s.inLine && i == s.cursor
		if selected {
			mark = "> "
		}
		text := mark + columns(widths, strconv.Itoa(i+1), c.Name, joined, c.Session, clipHead(lastElement(c.ID), id))
		rows = append(rows, Row{{Text: text, Look: look, Selected: selected}})
	}
	for len(rows) < height+2 {
		rows = append(rows, nil)
	}
	return rows
}

// candidateRows returns the selected candidate with its complete ID.
func (s State) candidateRows() []Row {
	line := s.line()
	if !s.inLine || len(line) == 0 {
		return []Row{nil, nil}
	}
	c := line[s.cursor]
	return []Row{row(Dim, "%s, token %d", c.Name, c.Token), row(Dim, "%s", lastElement(c.ID))}
}

// changeRows returns the recent changes with a title.
func (s State) changeRows(width, height int) []Row {
	rows := []Row{row(Title, "%s", pad("Recent changes", width))}
	shown := s.changes[:min(len(s.changes), max(0, height-1))]
	longest := 0
	for _, c := range shown {
		longest = max(longest, displaywidth.String(printable(c.election)))
	}
	longest = min(longest, max(8, width/3))
	for _, c := range shown {
		at := c.at.Format("15:04:05  ")
		name := pad(clipHead(c.election, longest), longest)
		rows = append(rows, Row{
			{Text: at + name + "  ", Look: Plain},
			{Text: clip(c.text, max(0, width-len(at)-longest-2)), Look: c.look},
		})
	}
	for len(rows) < height {
		rows = append(rows, nil)
	}
	return rows
}

func lastElement(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// first returns the first of n rows to show in a height, so that row at is visible.
func first(at, height, n int) int {
	return max(0, min(at-height/2, n-height))
}

// columns puts cells into columns, two spaces apart. A negative width aligns to the right, and a
// width of zero omits the cell.
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

// clip shortens a text to a width. Control characters, which other programs choose, are replaced.
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

// clipHead is like clip and keeps the end.
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

// age formats a duration in at most seven characters.
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
