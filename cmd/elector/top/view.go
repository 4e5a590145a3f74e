package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// Style is the style in which the screen shows a text.
type Style int

// The styles of texts. A style shows nothing that the text does not also express, because terminals can lack colours.
const (
	Plain Style = iota
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
	Style    Style
	Selected bool
}

// Row is one row of the screen. It is as wide as the screen.
type Row []Span

// minWidth and minHeight are the size of the screen below which View shows only that the screen must be larger.
const (
	minWidth  = 40
	minHeight = 10
)

// The screen shows the recent changes on the right if it has at least wideWidth columns, and otherwise at the bottom
// if it has at least tallHeight rows.
const (
	wideWidth  = 120
	tallHeight = 20
)

// View returns the rows of the screen, as many as its height.
func (s State) View() []Row {
	var rows []Row
	switch {
	case s.width < minWidth || s.height < minHeight:
		rows = []Row{{{Text: fmt.Sprintf("needs %dx%d", minWidth, minHeight), Style: Alarm}}}
	case s.help:
		rows = append([]Row{s.titleRow(), {}}, helpRows...)
	default:
		rows = s.screenRows()
	}
	for len(rows) < s.height {
		rows = append(rows, nil)
	}
	rows = rows[:s.height]
	for i := range rows {
		rows[i] = rows[i].fitWidth(s.width)
	}
	return rows
}

// fitWidth clips or pads a row to a width.
func (r Row) fitWidth(width int) Row {
	var fitted Row
	for _, span := range r {
		span.Text = clipText(span.Text, width)
		width -= displaywidth.String(span.Text)
		fitted = append(fitted, span)
	}
	if width > 0 || len(fitted) == 0 {
		rest := Span{Text: strings.Repeat(" ", width)}
		if n := len(fitted); n > 0 {
			rest.Style, rest.Selected = fitted[n-1].Style, fitted[n-1].Selected
		}
		fitted = append(fitted, rest)
	}
	return fitted
}

// textRow returns a row whose whole text has one style.
func textRow(style Style, format string, args ...any) Row {
	return Row{{Text: fmt.Sprintf(format, args...), Style: style}}
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
		rows = append(rows, textRow(Plain, "%s", text))
	}
	return append(rows, nil, textRow(Dim, "any key returns"))
}()

func (s State) screenRows() []Row {
	if s.width < wideWidth {
		return s.mainRows(s.width, s.height)
	}
	panel := min(80, s.width*2/5)
	left := s.width - panel - 3
	rows := s.mainRows(left, s.height)
	changes := s.changeRows(panel, s.height-3)
	const first = 2 // the first row below the title and the summary
	for i, change := range changes {
		rows[first+i] = append(append(rows[first+i].fitWidth(left), Span{Text: " | ", Style: Dim}), change...)
	}
	return rows
}

// mainRows returns the rows of elections and candidates, and also of the recent changes if they are at the bottom.
func (s State) mainRows(width, height int) []Row {
	// The number 9 counts the rows that are always present: the title, the summary and the header of
	// the elections; a blank row, the title and the header of the queue; two rows of the selected
	// candidate; the keys.
	free := height - 9
	below := 0
	if s.width < wideWidth && height >= tallHeight {
		below = 1 + min(8, height/6)
	}
	visible := s.visibleElections()
	upper := min(max(1, len(visible)), max(1, (free-below)/2))

	rows := []Row{s.titleRow(), s.summaryRow(len(visible))}
	rows = append(rows, s.electionRows(visible, width, upper)...)
	rows = append(rows, nil)
	rows = append(rows, s.queueRows(width, free-below-upper)...)
	rows = append(rows, s.candidateRows()...)
	if below > 0 {
		rows = append(rows, s.changeRows(width, below)...)
	}
	return append(rows, s.keyRow())
}

// keyRow returns a row with the available keys, or with the question that the user must answer.
func (s State) keyRow() Row {
	switch {
	case s.filtering:
		return Row{{Text: "filter: " + s.filter + "_", Style: Title}, {Text: "   enter keep   esc remove", Style: Dim}}
	case s.unconfirmed != nil:
		return textRow(Warning, "y/n: request %s to hand over %s", s.unconfirmed.Candidate.Name, s.unconfirmed.Election)
	}
	other := "queue"
	if s.inQueue {
		other = "elections"
	}
	return textRow(Dim, "up/down select  tab %s  / filter  s sort  r resign  ? help  q quit", other)
}

func (s State) titleRow() Row {
	clock := s.now.Format("15:04:05")
	left := clipText("elector top  "+s.title, s.width-len(clock)-2)
	return Row{{Text: padText(left, s.width-len(clock)) + clock, Style: Title}}
}

// summaryRow summarizes the elections, or describes a problem.
func (s State) summaryRow(visible int) Row {
	for _, e := range s.elections {
		if e.err == nil {
			continue
		}
		since := e.updated
		if since.IsZero() {
			since = s.started
		}
		return textRow(Alarm, "no answer for %s: %s", formatAge(s.now.Sub(since)), strings.ReplaceAll(e.err.Error(), "\n", "; "))
	}
	if s.note != "" {
		return textRow(Alarm, "%s", s.note)
	}
	candidates, leaderless := 0, 0
	for _, e := range s.elections {
		candidates += len(e.queue)
		if e.isLeaderless() {
			leaderless++
		}
	}
	r := textRow(Plain, "%s, %s", formatPlural(len(s.elections), "election"), formatPlural(candidates, "candidate"))
	if leaderless > 0 {
		r = append(r, Span{Text: fmt.Sprintf(", %d without a leader", leaderless), Style: Alarm})
	}
	more := ""
	if s.order != asGiven {
		more += ", sorted " + s.order.String()
	}
	if s.filter != "" {
		more += fmt.Sprintf(", %d with %q", visible, s.filter)
	}
	return append(r, Span{Text: more})
}

// formatPlural returns a number followed by a noun, in the plural unless the number is 1.
func formatPlural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// electionRows returns the table of elections with its header.
func (s State) electionRows(visible []election, width, height int) []Row {
	token, longest, leader := len("TOKEN"), len("ELECTION"), len("(does not exist)")
	for _, e := range visible {
		longest = max(longest, displaywidth.String(cmdline.Printable(e.name)))
		if len(e.queue) > 0 {
			token = max(token, len(strconv.FormatInt(e.leader().Token, 10)))
			leader = max(leader, 2+displaywidth.String(cmdline.Printable(e.leader().Name)))
		}
	}
	const leads, waiting = 8, 5
	names := width - 2 - token - leads - waiting - 4*2
	// Each column gets at most its share of the width, or more if the other column needs less than its share.
	name := max(8, min(longest, max(names*11/20, names-leader)))
	widths := []int{name, max(6, min(leader, names-name)), -token, -leads, -waiting}
	rows := []Row{textRow(Header, "  %s", joinColumns(widths, "ELECTION", "LEADER", "TOKEN", "LEADS", "WAIT"))}
	for i := firstRow(s.selectedRow, height, len(visible)); i < len(visible) && len(rows) <= height; i++ {
		e := visible[i]
		cells := []string{e.name, "", "-", "-", "-"}
		style := Plain
		switch {
		case e.missing:
			cells[1], style = "(does not exist)", Dim
		case e.updated.IsZero():
			cells[1], style = "...", Dim
		case len(e.queue) == 0:
			cells[1], cells[4], style = "(no leader)", "0", Alarm
		default:
			l := e.leader()
			led := formatAge(s.now.Sub(e.leadsSince))
			if e.ledBefore {
				led = ">" + led
			}
			cells[1], cells[2], cells[3], cells[4] = l.Name, strconv.FormatInt(l.Token, 10), led, strconv.Itoa(len(e.queue)-1)
			style = Leading
		}
		if e.err != nil && !e.updated.IsZero() {
			cells[1], style = "? "+cells[1], Warning
		}
		mark := "  "
		if i == s.selectedRow {
			mark = "> "
		}
		rest := joinColumns(widths, cells...)
		head := padText(clipText(e.name, name), name)
		selected := i == s.selectedRow && !s.inQueue
		rows = append(rows, Row{
			{Text: mark + head, Style: Plain, Selected: selected},
			{Text: strings.TrimPrefix(rest, head), Style: style, Selected: selected},
		})
	}
	for len(rows) <= height {
		text := "  no election found yet"
		if len(s.elections) > 0 {
			text = "  no election matches the filter"
		}
		rows = append(rows, textRow(Dim, "%s", text))
	}
	return rows
}

// queueRows returns the queue of the selected election with a title and a header.
func (s State) queueRows(width, height int) []Row {
	queue := s.selectedQueue()
	title := ""
	if s.selected != "" {
		title = s.selected + ": " + formatPlural(len(queue), "candidate") + " in order"
	}
	session, id, longest := len("SESSION"), len("ID"), 6
	for _, c := range queue {
		session, id = max(session, len(c.Session)), max(id, len(lastElement(c.ID)))
		longest = max(longest, displaywidth.String(cmdline.Printable(c.Name)))
	}
	const number, joined, minID, minWithSession = 4, 8, 19, 70
	if width < minWithSession {
		session = 0 // joinColumns omits columns of width 0
	}
	names := width - 2 - number - joined - session - 4*2
	id = max(minID, min(id, names-min(longest, 20)))
	widths := []int{-number, max(6, min(longest, names-id)), -joined, session, id}
	rows := []Row{textRow(Title, "%s", title), textRow(Header, "  %s", joinColumns(widths, "#", "NAME", "JOINED", "SESSION", "ID"))}
	for i := firstRow(s.cursor, height, len(queue)); i < len(queue) && len(rows) < height+2; i++ {
		c := queue[i]
		joined := "-"
		if !c.Joined.IsZero() {
			joined = formatAge(s.now.Sub(c.Joined))
		}
		style, mark := Plain, "  "
		if i == 0 {
			style = Leading
		}
		selected := s.inQueue && i == s.cursor
		if selected {
			mark = "> "
		}
		text := mark + joinColumns(widths, strconv.Itoa(i+1), c.Name, joined, c.Session, clipHead(lastElement(c.ID), id))
		rows = append(rows, Row{{Text: text, Style: style, Selected: selected}})
	}
	for len(rows) < height+2 {
		rows = append(rows, nil)
	}
	return rows
}

// candidateRows returns the selected candidate with its complete ID.
func (s State) candidateRows() []Row {
	queue := s.selectedQueue()
	if !s.inQueue || len(queue) == 0 {
		return []Row{nil, nil}
	}
	c := queue[s.cursor]
	return []Row{textRow(Dim, "%s, token %d", c.Name, c.Token), textRow(Dim, "%s", lastElement(c.ID))}
}

// changeRows returns the recent changes with a title.
func (s State) changeRows(width, height int) []Row {
	rows := []Row{textRow(Title, "%s", padText("Recent changes", width))}
	shown := s.changes[:min(len(s.changes), max(0, height-1))]
	longest := 0
	for _, c := range shown {
		longest = max(longest, displaywidth.String(cmdline.Printable(c.election)))
	}
	longest = min(longest, max(8, width/3))
	for _, c := range shown {
		at := c.at.Format("15:04:05  ")
		name := padText(clipHead(c.election, longest), longest)
		rows = append(rows, Row{
			{Text: at + name + "  ", Style: Plain},
			{Text: clipText(c.text, max(0, width-len(at)-longest-2)), Style: c.style},
		})
	}
	for len(rows) < height {
		rows = append(rows, nil)
	}
	return rows
}

func lastElement(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// firstRow returns the first of n rows to show on a screen of the given height, so that the row at is visible.
func firstRow(at, height, n int) int {
	return max(0, min(at-height/2, n-height))
}

// joinColumns puts cells into columns, two spaces apart. A negative width aligns to the right, and a
// width of zero omits the cell.
func joinColumns(widths []int, cells ...string) string {
	var b strings.Builder
	for i, cell := range cells {
		if widths[i] == 0 {
			continue
		}
		if i > 0 {
			b.WriteString("  ")
		}
		if w := widths[i]; w < 0 {
			cell = clipText(cell, -w)
			b.WriteString(strings.Repeat(" ", -w-displaywidth.String(cell)) + cell)
		} else {
			b.WriteString(padText(clipText(cell, w), w))
		}
	}
	return b.String()
}

func padText(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-displaywidth.String(text)))
}

// clipText shortens a text to a width, and replaces control characters, because other programs can choose the text.
func clipText(text string, width int) string {
	text = cmdline.Printable(text)
	if displaywidth.String(text) <= width {
		return text
	}
	if width <= 3 {
		return displaywidth.TruncateString(text, max(0, width), "")
	}
	return displaywidth.TruncateString(text, width, "...")
}

// clipHead shortens a text to a width like clipText, but removes the beginning of the text instead of the end.
func clipHead(text string, width int) string {
	text = cmdline.Printable(text)
	for displaywidth.String(text) > width {
		text = strings.TrimPrefix(text, "...")
		_, size := utf8.DecodeRuneInString(text)
		text = "..." + text[size:]
	}
	return text
}

// formatAge formats a duration in at most seven characters.
func formatAge(d time.Duration) string {
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
