package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"
)

const (
	// maxPageCandidates is the maximum number of candidates that the page of --listen shows.
	maxPageCandidates = 100
	// queueAge, plus queueAgeEach for each candidate, is the age at which a list of candidates is outdated. Some
	// backends need a request for each candidate. With these ages, the viewers of the page cause at most about 100
	// requests a second.
	queueAge     = 2 * time.Second
	queueAgeEach = 20 * time.Millisecond
)

// queueView lists the candidates for the page. All viewers share a list, so that the backend receives the same number
// of requests however many viewers there are.
type queueView struct {
	list func(context.Context) ([]candidateInfo, error) // nil if the backend cannot list candidates
	busy chan struct{}                                  // contains an element while a request uses the field last
	last queueState
}

// queueState is a list of candidates. It contains only what the page shows, because the texts of other programs can
// be long.
type queueState struct {
	at         time.Time       // when the list was requested; zero if there was no request yet
	candidates []candidateInfo // the first candidates of the queue, at most maxPageCandidates
	total      int             // the number of all candidates
	err        error
}

func newQueueView(b backend, election string) *queueView {
	q := &queueView{busy: make(chan struct{}, 1)}
	if b.list != nil {
		q.list = func(ctx context.Context) ([]candidateInfo, error) { return b.list(ctx, election) }
	}
	return q
}

// get returns the last list, or requests a new one if that list is outdated. It waits for the backend for at most
// listLimit, and for the requests of other viewers until ctx is done. A viewer that disconnects does not interrupt
// the request, because otherwise each such viewer would cause another request.
func (q *queueView) get(ctx context.Context) queueState {
	if q.list == nil {
		return queueState{}
	}
	select {
	case q.busy <- struct{}{}:
	case <-ctx.Done():
		return queueState{at: time.Now(), err: ctx.Err()}
	}
	defer func() { <-q.busy }()
	if time.Since(q.last.at) < queueAge+time.Duration(q.last.total)*queueAgeEach {
		return q.last
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), listLimit)
	defer cancel()
	candidates, err := q.list(limited)
	state := queueState{at: time.Now(), total: len(candidates), err: err}
	for _, c := range candidates[:min(len(candidates), maxPageCandidates)] {
		state.candidates = append(state.candidates, candidateInfo{Name: shortenCell(c.Name), Value: shortenCell(c.Value), ID: shortenCell(c.ID), Token: c.Token, Joined: c.Joined})
	}
	q.last = state
	return state
}

// writePage writes the page of --listen at the path /.
func (w *webServer) writePage(rw http.ResponseWriter, r *http.Request) {
	p := &page{now: time.Now()}
	leader, report := w.leader(), w.elector.Current()
	since := time.Time{} // when the leader became the leader; zero if this instance has not observed that
	if leader.Leader != nil {
		since = leader.Leader.LeadsSince
	}
	if leader.Leads && since.IsZero() {
		since = report.Since
	}
	p.addLeader(leader, since)
	p.addInstance(leader, cmp.Or(w.checkReady().reason, "ready"), string(report.State))
	p.add("<h2>Candidates</h2>\n")
	switch queue := w.listCandidates(r.Context()); {
	case w.queue.list == nil:
		p.add("<p>This backend does not list the candidates here.</p>\n")
	case queue.err != nil:
		p.add("<p class=\"none\">The backend does not answer.</p>\n")
	default:
		p.addQueue(queue)
	}
	p.addChanges(w.run.leader.lastChanges())

	header := rw.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", pagePolicy)
	_, _ = rw.Write(p.renderDocument(leader)) // ignore the error: the client has closed the connection
}

// listCandidates returns the candidates for the page. It sends no request while the backend is disconnected.
func (w *webServer) listCandidates(ctx context.Context) queueState {
	if err := w.backend.checkConnected(); err != nil {
		return queueState{err: err}
	}
	queue := w.queue.get(ctx)
	if queue.err != nil {
		w.log.Warn("the candidates cannot be listed for the page of --listen", "err", queue.err)
	}
	return queue
}

// page is the main element of the page. It is not a template of package html/template, because that adds 2.5 MB to
// the smallest binary: templates call methods by name, so the linker has to keep all methods.
type page struct {
	now  time.Time
	body strings.Builder
}

// add adds HTML to the page. It escapes all arguments, because most of them come from other programs.
func (p *page) add(format string, args ...any) {
	for i, arg := range args {
		text := fmt.Sprint(arg)
		if t, ok := arg.(time.Time); ok {
			text = t.UTC().Format("2006-01-02 15:04:05 UTC")
		}
		args[i] = html.EscapeString(shortenCell(text))
	}
	fmt.Fprintf(&p.body, format, args...)
}

func (p *page) addLeader(l leaderReply, since time.Time) {
	p.add("<h1>%v</h1>\n", l.Election)
	if l.Leader == nil {
		p.add("<p class=\"none\">No leader is known</p>\n")
		return
	}
	p.add("<p class=\"leader\"><strong>%v</strong> leads</p>\n<dl>\n", l.Leader.Name)
	if since.IsZero() {
		p.add("<dt>Since</dt><dd>before this instance observed it</dd>\n")
	} else {
		p.add("<dt>Since</dt><dd>%v, for %v</dd>\n", since, p.now.Sub(since).Round(time.Second))
	}
	p.add("<dt>Token</dt><dd>%v</dd>\n", l.Leader.Token)
	if l.Leader.Value != "" {
		p.add("<dt>Value</dt><dd>%v</dd>\n", l.Leader.Value)
	}
	p.add("</dl>\n")
}

func (p *page) addInstance(l leaderReply, condition, state string) {
	if l.Leads {
		condition = "leads"
	}
	p.add("<h2>This instance</h2>\n<dl>\n<dt>Name</dt><dd>%v</dd>\n<dt>State</dt><dd>%v (%v)</dd>\n", l.Instance, condition, state)
	if l.Deadline != nil {
		p.add("<dt>Lease</dt><dd>until %v, unless it is extended</dd>\n", *l.Deadline)
	}
	p.add("</dl>\n")
}

func (p *page) addQueue(queue queueState) {
	if queue.total == 0 {
		p.add("<p>There are no candidates.</p>\n")
		return
	}
	p.add("<table>\n<tr><th>Place<th>Name<th>Value<th>Token<th>Joined<th>ID\n")
	for i, c := range queue.candidates {
		if i == 0 {
			p.add("<tr class=\"leader\"><td>leader")
		} else {
			p.add("<tr><td>%v", i)
		}
		p.add("<td>%v<td>%v<td>%v<td>", c.Name, c.Value, c.Token)
		if !c.Joined.IsZero() {
			p.add("%v", c.Joined)
		}
		p.add("<td>%v\n", c.ID)
	}
	p.add("</table>\n")
	if omitted := queue.total - len(queue.candidates); omitted > 0 {
		p.add("<p>%v further candidates are not shown.</p>\n", omitted)
	}
}

func (p *page) addChanges(changes []leaderChange) {
	p.add("<h2>Changes of the leader</h2>\n")
	if len(changes) == 0 {
		p.add("<p>None since this instance has started.</p>\n")
		return
	}
	p.add("<table>\n<tr><th>Observed<th>Leader<th>Token\n")
	for _, c := range changes {
		if c.Token == 0 {
			p.add("<tr><td>%v<td>none, or unknown<td>\n", c.At)
		} else {
			p.add("<tr><td>%v<td>%v<td>%v\n", c.At, c.Name, c.Token)
		}
	}
	p.add("</table>\n")
}

// renderDocument returns the HTML document of the page, with its head, its links and its script.
func (p *page) renderDocument(l leaderReply) []byte {
	title := &page{}
	if l.Leader == nil {
		title.add("no known leader of %v", l.Election)
	} else {
		title.add("%v leads %v", l.Leader.Name, l.Election)
	}
	p.add(`<p class="foot">As of %v.
<a href="leader">/leader</a>: 200 if this instance leads.
<a href="readyz">/readyz</a>: 200 if it is a candidate or the leader.
<a href="healthz">/healthz</a>: 503 if a restart could help.
<a href="metrics">/metrics</a>: for Prometheus.</p>
`, p.now)
	return []byte(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>` + title.body.String() + `</title>
<style>` + pageStyle + `</style>
<main>
` + p.body.String() + `</main>
<script>` + pageScript + `</script>
</html>
`)
}

// pagePolicy lets a browser execute nothing but the style and the script of the page, and load nothing but the page.
var pagePolicy = "default-src 'none'; style-src " + sourceHash(pageStyle) + "; script-src " + sourceHash(pageScript) +
	"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func sourceHash(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

const pageStyle = `
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1, dd { overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.5rem; }
p.leader { font-size: 1.5rem; margin: 0.5rem 0; }
.leader strong, tr.leader td { color: light-dark(#1a7f37, #3fb950); }
.none { color: light-dark(#cf222e, #ff7b72); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; margin: 0; }
dd { margin: 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { text-align: left; padding: 0.2rem 1rem 0.2rem 0; white-space: nowrap; }
dt, th, .foot { opacity: 0.7; font-weight: normal; }
.foot { margin-top: 2rem; font-size: 0.9rem; }
.stale main { opacity: 0.5; }
.stale::before { content: "This instance does not answer. Below is its last answer."; display: block; padding: 0.5rem 1rem; color: #fff; background: #cf222e; }
`

// pageScript loads the page again every two seconds, and replaces the content by the new one.
const pageScript = `
const update = async () => {
	try {
		if (!document.hidden) {
			const reply = await fetch(location.href, {signal: AbortSignal.timeout(10000)});
			if (!reply.ok) throw reply.status;
			const next = new DOMParser().parseFromString(await reply.text(), "text/html");
			document.querySelector("main").replaceWith(next.querySelector("main"));
			document.title = next.title;
			document.body.className = "";
		}
	} catch {
		document.body.className = "stale";
	}
	setTimeout(update, 2000);
};
setTimeout(update, 2000);
`
