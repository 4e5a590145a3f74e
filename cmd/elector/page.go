package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"time"
)

const (
	// maxPageCandidates is the maximum number of candidates that the page shows.
	maxPageCandidates = 100
	// queueAge is the age at which a list of candidates is outdated. queueAgeEach is added for each candidate,
	// because some backends need requests for each: so viewers of the page cause at most about 100 a second.
	queueAge     = 2 * time.Second
	queueAgeEach = 20 * time.Millisecond
)

// queueView lists the candidates for the page. Requests share a list, so that their number does not matter to the
// backend.
type queueView struct {
	list func(context.Context) ([]candidateInfo, error) // nil if the backend does not support it
	busy chan struct{}                                  // contains an element while a request uses last
	last queueState
}

// queueState is the result of a list. It contains only what the page shows, since the texts of other programs can be long.
type queueState struct {
	at         time.Time       // zero if there was no list
	candidates []candidateInfo // at most maxPageCandidates
	total      int             // number of candidates
	err        error
}

func newQueueView(b backend, election string) *queueView {
	q := &queueView{busy: make(chan struct{}, 1)}
	if b.list != nil {
		q.list = func(ctx context.Context) ([]candidateInfo, error) { return b.list(ctx, election) }
	}
	return q
}

// get returns the last list, or a new one if that is outdated. It waits for the backend for at most listLimit, and for
// other requests until ctx is done.
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
	limited, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	candidates, err := q.list(limited)
	state := queueState{at: time.Now(), total: len(candidates), err: err}
	for _, c := range candidates[:min(len(candidates), maxPageCandidates)] {
		state.candidates = append(state.candidates, candidateInfo{Name: cell(c.Name), Value: cell(c.Value), ID: cell(c.ID), Token: c.Token, Joined: c.Joined})
	}
	if ctx.Err() == nil { // otherwise the client has interrupted the list
		q.last = state
	}
	return state
}

// pageData is what the template of the page shows. The names in it come from other programs.
type pageData struct {
	Now    time.Time
	Leader leaderReply
	Since  time.Time // when the leader began to lead; zero if this instance has not observed it
	State  string    // of the Elector
	Reason string    // why this instance is not ready, or ""

	Listed     bool // the backend can list the candidates
	ListFailed bool
	Candidates []candidateInfo
	Omitted    int            // number of further candidates
	Changes    []leaderChange // the newest first

	Style  template.CSS
	Script template.JS
}

// writePage writes the page /.
func (w *webServer) writePage(rw http.ResponseWriter, r *http.Request) {
	report := w.elector.Current()
	data := pageData{
		Now: time.Now(), Leader: w.leader(), State: string(report.State), Reason: w.checkReady().reason,
		Listed: w.queue.list != nil, Changes: w.run.leader.lastChanges(), Style: pageStyle, Script: pageScript,
	}
	if leader := data.Leader.Leader; leader != nil {
		data.Since = leader.LeadsSince
		if data.Leader.Leads && data.Since.IsZero() {
			data.Since = report.Since
		}
	}
	if w.backend.checkConnected() != nil {
		data.ListFailed = true
	} else if queue := w.queue.get(r.Context()); queue.err != nil {
		data.ListFailed = true
		w.log.Warn("the candidates cannot be listed for the page of --listen", "err", queue.err)
	} else {
		data.Candidates, data.Omitted = queue.candidates, queue.total-len(queue.candidates)
	}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, data); err != nil {
		w.log.Error("the page of --listen failed", "err", err)
		http.Error(rw, "internal error", http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	rw.Header().Set("Content-Security-Policy", pagePolicy)
	_, _ = rw.Write(page.Bytes()) // fails if the client has closed the connection
}

// pagePolicy lets a browser execute nothing but the style and the script of the page, and load nothing but the page.
var pagePolicy = "default-src 'none'; style-src " + sourceHash(pageStyle) + "; script-src " + sourceHash(pageScript) +
	"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func sourceHash[T ~string](source T) string {
	sum := sha256.Sum256([]byte(source))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"text": cell,
	"time": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"age":  func(now, t time.Time) string { return now.Sub(t).Round(time.Second).String() },
}).Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{with .Leader.Leader}}{{text .Name}} leads{{else}}no known leader of{{end}} {{text .Leader.Election}}</title>
<style>{{.Style}}</style>
<main>
<h1>{{text .Leader.Election}}</h1>
{{with .Leader.Leader -}}
<p class="leader"><strong>{{text .Name}}</strong> leads</p>
<dl>
<dt>Since</dt><dd>{{if $.Since.IsZero}}before this instance observed it{{else}}{{time $.Since}}, for {{age $.Now $.Since}}{{end}}</dd>
<dt>Token</dt><dd>{{.Token}}</dd>
{{with .Value}}<dt>Value</dt><dd>{{text .}}</dd>
{{end}}</dl>
{{else -}}
<p class="none">No leader is known</p>
{{end -}}
<h2>This instance</h2>
<dl>
<dt>Name</dt><dd>{{text .Leader.Instance}}</dd>
<dt>State</dt><dd>{{if .Leader.Leads}}leads{{else if .Reason}}{{.Reason}}{{else}}ready{{end}} ({{.State}})</dd>
{{with .Leader.Deadline}}<dt>Lease</dt><dd>until {{time .}}, unless it is extended</dd>
{{end}}</dl>
<h2>Candidates</h2>
{{if not .Listed -}}
<p>This backend does not list the candidates here.</p>
{{else if .ListFailed -}}
<p class="none">The backend does not answer.</p>
{{else if not .Candidates -}}
<p>There are no candidates.</p>
{{else -}}
<table>
<tr><th>Place<th>Name<th>Value<th>Token<th>Joined<th>ID
{{range $i, $c := .Candidates -}}
<tr{{if eq $i 0}} class="leader"{{end}}><td>{{if eq $i 0}}leader{{else}}{{$i}}{{end}}<td>{{text .Name}}<td>{{text .Value}}<td>{{.Token}}<td>{{if not .Joined.IsZero}}{{time .Joined}}{{end}}<td>{{text .ID}}
{{end -}}
</table>
{{with .Omitted}}<p>{{.}} further candidates are not shown.</p>
{{end -}}
{{end -}}
<h2>Changes of the leader</h2>
{{if .Changes -}}
<table>
<tr><th>Observed<th>Leader<th>Token
{{range .Changes -}}
<tr><td>{{time .At}}<td>{{if .Token}}{{.Name}}<td>{{.Token}}{{else}}none, or unknown<td>{{end}}
{{end -}}
</table>
{{else -}}
<p>None since this instance has started.</p>
{{end -}}
<p class="foot">As of {{time .Now}}.
<a href="leader">/leader</a>: 200 if this instance leads.
<a href="readyz">/readyz</a>: 200 if it is a candidate or the leader.
<a href="healthz">/healthz</a>: 503 if a restart could help.
<a href="metrics">/metrics</a>: for Prometheus.</p>
</main>
<script>{{.Script}}</script>
</html>
`))

const pageStyle template.CSS = `
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

// pageScript replaces the content by that of the same page every two seconds.
const pageScript template.JS = `
const update = async () => {
	try {
		if (!document.hidden) {
			const reply = await fetch(location.href);
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
