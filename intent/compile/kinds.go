package compile

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the same time zones on every machine

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/expression"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// Defaults of protections.
const (
	defaultHTTPTimeout    = 10 * time.Second
	defaultCommandTimeout = 30 * time.Second
	defaultJobTimeout     = 5 * time.Minute
	defaultCapacityWindow = 24 * time.Hour
	minCapacityWindow     = time.Minute
)

// kind sets and checks the definition of a protection.
func (f *fieldCompiler) kind(k config.ProtectionKind, into *entities.CheckDefinition) {
	kinds := k.Kinds()
	if len(kinds) != 1 {
		return // already reported
	}
	into.Kind = kinds[0]
	at := strict.Field(f.at, string(into.Kind))
	switch into.Kind {
	case entities.CheckAllowedTimes:
		into.AllowedTimes = f.allowedTimes(at, k.AllowedTimes)
	case entities.CheckDeniedVersions:
		into.DeniedVersions = f.deniedVersions(at, k.DeniedVersions)
	case entities.CheckDeniedCommits:
		into.DeniedCommits = f.deniedCommits(at, k.DeniedCommits)
	case entities.CheckPrometheus:
		into.Prometheus = f.prometheus(at, k.Prometheus)
	case entities.CheckAlertmanager:
		into.Alertmanager = f.alerts(at, k.Alertmanager)
	case entities.CheckHTTP:
		into.HTTP = f.http(at, k.HTTP)
	case entities.CheckCommand, entities.CheckJob, entities.CheckTask:
		into.Dir, into.Command = path.Dir(f.d.File), f.checkRun(at, k)
	case entities.CheckCapacity:
		into.Capacity = f.capacity(at, k.Capacity)
	case entities.CheckCEL:
		into.CEL = &entities.CELCheck{
			Expression: f.text(at+".expression", k.CEL.Expression, checkExpression), Message: f.text(at+".message", k.CEL.Message, nil), Fails: k.CEL.OnFalse == "fail",
		}
	case entities.CheckCompare:
		into.Compare = f.compare(at, k.Compare)
	case entities.CheckAlways:
		into.Always = &entities.AlwaysCheck{Verdict: entities.Verdict(k.Always.Verdict), Reason: f.text(at+".reason", k.Always.Reason, nil)}
	}
}

// checkRun sets the command of a check, for every place where it can run.
func (f *fieldCompiler) checkRun(at string, k config.ProtectionKind) *entities.CheckRun {
	run := &entities.CheckRun{}
	fill := func(argv []string, timeout config.Duration, by span, env map[config.EnvName]config.EnvValue) {
		run.Command, run.Env = f.command(at, argv, f.period(at+".timeout", timeout, by)), f.env(at+".env", env)
	}
	switch {
	case k.Command != nil:
		fill(k.Command.Command, k.Command.Timeout, span{defaultCommandTimeout, time.Millisecond}, k.Command.Env)
	case k.Job != nil:
		fill(k.Job.Command, k.Job.Timeout, span{defaultJobTimeout, time.Second}, k.Job.Env)
		run.Job = f.job(at, &k.Job.CommandJob)
	case k.Task != nil:
		fill(k.Task.Command, k.Task.Timeout, span{defaultJobTimeout, time.Second}, k.Task.Env)
		run.Task = f.task(at, &k.Task.CommandTask, at+".env", k.Task.Env, run.Env)
	}
	return run
}

func (f *fieldCompiler) deniedVersions(at string, v *config.DeniedVersions) *entities.DeniedVersions {
	f.rejectEmpty(at+".versions", len(v.Versions), "versions, or patterns such as v1.2.*")
	return &entities.DeniedVersions{Versions: f.texts(at+".versions", v.Versions, checkPattern), Reason: f.text(at+".reason", v.Reason, nil)}
}

func (f *fieldCompiler) deniedCommits(at string, v *config.DeniedCommits) *entities.DeniedCommits {
	f.rejectEmpty(at+".commits", len(v.Commits), "commits, by at least 7 digits of each")
	return &entities.DeniedCommits{Commits: f.texts(at+".commits", v.Commits, checkCommit), Reason: f.text(at+".reason", v.Reason, nil)}
}

func checkCommit(text string) *strict.Fault {
	if commitRE.MatchString(text) {
		return nil
	}
	return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("invalid commit %q", text), Expected: "7 to 64 digits of its hash, in lower-case hex"}
}

func (f *fieldCompiler) prometheus(at string, p *config.PrometheusProtection) *entities.PrometheusQuery {
	query := &entities.PrometheusQuery{
		URL: f.text(at+".url", p.URL, checkURL), Query: f.text(at+".query", p.Query, notEmpty("a query in PromQL")),
		LessThan: f.number(at+".lessThan", p.LessThan), GreaterThan: f.number(at+".greaterThan", p.GreaterThan),
		Token: f.token(at+".token", p.Token),
	}
	if p.Empty == "pass" {
		query.Empty = "pass"
	}
	if p.LessThan == nil && p.GreaterThan == nil && !f.d.Faulty(at) {
		f.reportUnscoped(at, strict.Fault{Code: "missing-field", Message: "the query has no bounds", Expected: `"lessThan", "greaterThan" or both`})
	}
	if less, greater := query.LessThan, query.GreaterThan; less != nil && greater != nil && *less <= *greater {
		f.reportSubstituted(at, p.LessThan.Text+p.GreaterThan.Text, strict.Fault{
			Code: "bad-value", Message: "no sample can be less than " + substitute.AsText(*less) + " and greater than " + substitute.AsText(*greater), Expected: "greaterThan below lessThan",
		})
	}
	return query
}

func (f *fieldCompiler) alerts(at string, a *config.AlertmanagerProtection) *entities.Alerts {
	alerts := &entities.Alerts{URL: f.text(at+".url", a.URL, checkURL), Matchers: map[string]string{}, Token: f.token(at+".token", a.Token)}
	f.rejectEmpty(at+".matchers", len(a.Matchers), "at least one label, such as {service: web}")
	for _, label := range strict.Keys(a.Matchers) {
		alerts.Matchers[label] = f.text(strict.Key(at+".matchers", label), a.Matchers[label], nil)
	}
	return alerts
}

func (f *fieldCompiler) http(at string, h *config.HTTPProtection) *entities.HTTPCheck {
	check := &entities.HTTPCheck{
		URL: f.text(at+".url", h.URL, checkURL), Statuses: h.Statuses,
		Timeout: f.period(at+".timeout", h.Timeout, span{defaultHTTPTimeout, time.Millisecond}),
	}
	for i, status := range h.Statuses {
		if status < 100 || status > 599 {
			f.reportUnscoped(strict.Index(at+".statuses", i), strict.Fault{Code: "bad-value", Message: fmt.Sprintf("invalid status %d", status), Expected: "100 to 599"})
		}
	}
	for _, name := range strict.Keys(h.Headers) {
		if check.Headers == nil {
			check.Headers = map[string]entities.Value{}
		}
		check.Headers[name] = f.uncaptured(strict.Key(at+".headers", name), f.value(strict.Key(at+".headers", name), h.Headers[name]))
	}
	return check
}

func (f *fieldCompiler) capacity(at string, c *config.CapacityProtection) *entities.CapacityCheck {
	check := &entities.CapacityCheck{
		URL: f.text(at+".url", c.URL, checkURL), Use: f.text(at+".use", c.Use, notEmpty("a query in PromQL")),
		Over:     f.period(at+".over", c.Over, span{defaultCapacityWindow, minCapacityWindow}),
		Capacity: f.text(at+".capacity", c.Capacity, notEmpty("a query in PromQL")), Parameter: string(c.Parameter), Token: f.token(at+".token", c.Token),
		Object: f.text(at+".object", c.Object, notEmpty("the name of an object")),
	}
	switch {
	case f.d.Faulty(at):
	case c.Capacity == "" && c.Parameter == "" && c.Object == "":
		f.reportUnscoped(at, strict.Fault{Code: "one-of", Message: "the capacity is missing", Expected: `"capacity", "parameter" or "object"`})
	case !(&entities.CapacityCheck{Capacity: c.Capacity, Parameter: string(c.Parameter), Object: c.Object}).HasOneSource():
		f.reportUnscoped(at, strict.Fault{Code: "one-of", Message: "the capacity is given more than once", Expected: `one of "capacity", "parameter" and "object"`})
	case c.Per != nil && c.Capacity != "":
		f.reportUnscoped(at+".per", strict.Fault{Code: "one-of", Message: `"per" is the capacity of one unit of a parameter, or of one replica`, Expected: `"parameter" or "object" with it`})
	}
	if per := f.number(at+".per", c.Per); per != nil {
		check.Per = *per
		if *per <= 0 {
			f.reportSubstituted(at+".per", c.Per.Text, strict.Fault{Code: "bad-value", Message: substitute.AsText(*per) + " is not possible here", Expected: "a number above 0"})
		}
	}
	return check
}

// command sets a command and its arguments.
func (f *fieldCompiler) command(at string, argv []string, timeout time.Duration) entities.Command {
	at = strict.Field(at, "command")
	f.rejectEmpty(at, len(argv), "a program and its arguments")
	command := entities.Command{Timeout: timeout}
	for i, arg := range argv {
		var check func(string) *strict.Fault
		if i == 0 {
			check = notEmpty("a program's name or path")
		}
		command.Argv = append(command.Argv, f.text(strict.Index(at, i), arg, check))
	}
	return command
}

// job checks the settings of commands that run as Jobs. They have no substitutions.
func (f *fieldCompiler) job(at string, job *config.CommandJob) *entities.CommandJob {
	if f.scope == nil {
		return f.c.commandJob(f.d, at, job)
	}
	return jobEntity(job)
}

func checkURL(text string) *strict.Fault {
	u, err := url.Parse(strings.NewReplacer("${{ version }}", "v", "${{ fullVersion }}", "v").Replace(text))
	return strict.FaultUnless(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "bad-value", "invalid address %q", text, "one that begins with http:// or https://")
}

func checkExpression(text string) *strict.Fault {
	if strings.Contains(text, "${{") {
		return &strict.Fault{Code: "bad-value", Message: "substitution is not supported in an expression", Expected: "the variables of CEL, such as release.version, application and channel"}
	}
	if err := expression.Check(text); err != nil {
		return &strict.Fault{Code: "bad-value", Message: "invalid CEL: " + err.Error(), Expected: "a CEL expression that yields true or false"}
	}
	return nil
}

func checkPattern(text string) *strict.Fault {
	_, err := path.Match(text, "")
	return strict.FaultUnless(err == nil && text != "", "bad-value", "%q is neither a version nor a pattern", text, "such as v1.2.3 or v1.2.*")
}

// notEmpty rejects an empty text.
func notEmpty(expected string) func(string) *strict.Fault {
	return func(text string) *strict.Fault {
		if strings.TrimSpace(text) != "" {
			return nil
		}
		return &strict.Fault{Code: "missing-field", Message: "this is empty", Expected: expected}
	}
}

// hasNextChange reports whether a kind knows when it next changes, so that infrequent evaluations are enough.
func hasNextChange(kind entities.CheckKind) bool {
	return slices.Contains([]entities.CheckKind{entities.CheckAllowedTimes, entities.CheckDeniedVersions, entities.CheckAlways}, kind)
}

var (
	hoursRE   = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`)
	commitRE  = regexp.MustCompile(`^[0-9a-f]{7,64}$`)
	countryRE = regexp.MustCompile(`^[A-Z]{2}(-[A-Z0-9]{1,3})?$`)
	weekdays  = "Mon Tue Wed Thu Fri Sat Sun"
)

func (f *fieldCompiler) allowedTimes(at string, a *config.AllowedTimes) *entities.AllowedTimes {
	times := &entities.AllowedTimes{
		TimeZone:         f.text(at+".timeZone", a.TimeZone, checkTimeZone),
		HolidayCountries: f.texts(at+".holidayCountries", a.HolidayCountries, checkCountry),
		Holidays:         f.texts(at+".holidays", a.Holidays, checkDate),
	}
	if len(a.Windows)+len(a.HolidayCountries)+len(a.Holidays)+len(a.Freezes) == 0 && !f.d.Faulty(at) {
		f.reportUnscoped(at, strict.Fault{Code: "missing-field", Message: "it is always open", Expected: `"windows", "holidayCountries", "holidays" or "freezes"`})
	}
	for i, w := range a.Windows {
		path := strict.Index(at+".windows", i)
		if w.Days == "" && w.Hours == "" && !f.d.Faulty(path) {
			f.reportUnscoped(path, strict.Fault{Code: "missing-field", Message: "the window is always open", Expected: `"days", "hours" or both`})
		}
		times.Windows = append(times.Windows, entities.TimeWindow{
			Days: f.text(path+".days", w.Days, checkDays), Hours: f.text(path+".hours", w.Hours, checkHours),
		})
	}
	for i, z := range a.Freezes {
		times.Freezes = append(times.Freezes, f.freeze(strict.Index(at+".freezes", i), z, times.TimeZone))
	}
	return times
}

func (f *fieldCompiler) freeze(at string, z config.Freeze, zone string) entities.Freeze {
	freeze := entities.Freeze{
		From: f.text(at+".from", z.From, checkMoment), To: f.text(at+".to", z.To, checkMoment), Reason: f.text(at+".reason", z.Reason, nil),
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return freeze // already reported
	}
	from, _, fromOK := parseMoment(freeze.From, location)
	to, day, toOK := parseMoment(freeze.To, location)
	if day {
		to = to.AddDate(0, 0, 1)
	}
	if fromOK && toOK && !from.Before(to) {
		f.reportSubstituted(at, z.From+z.To, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("the freeze from %s to %s is empty", freeze.From, freeze.To), Expected: "an end after its beginning"})
	}
	return freeze
}

// parseMoment parses a day, a local time or a time with its zone; day reports whether it was a day.
func parseMoment(text string, in *time.Location) (t time.Time, day, ok bool) {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, in); err == nil {
			return t, layout == time.DateOnly, true
		}
	}
	return time.Time{}, false, false
}

func checkTimeZone(text string) *strict.Fault {
	_, err := time.LoadLocation(text)
	return strict.FaultUnless(err == nil && text != "" && text != "Local", "bad-value", "there is no time zone %q", text, "a name such as Europe/Paris or UTC")
}

func checkCountry(text string) *strict.Fault {
	return strict.FaultUnless(countryRE.MatchString(text), "bad-value", "invalid country %q", text, "two capital letters, as in FR, or with a region, as in DE-BY")
}

func checkDate(text string) *strict.Fault {
	_, err := time.Parse(time.DateOnly, text)
	return strict.FaultUnless(err == nil, "bad-value", "invalid day %q", text, "a day such as 2026-12-24")
}

func checkMoment(text string) *strict.Fault {
	_, _, ok := parseMoment(text, time.UTC)
	return strict.FaultUnless(ok, "bad-value", "%q is neither a day nor a time", text, "such as 2026-12-20, 2026-12-20T18:00 or 2026-12-20T18:00:00Z")
}

func checkDays(text string) *strict.Fault {
	if areDays(text) {
		return nil
	}
	f := &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("invalid list of days %q", strict.Clip(text)), Expected: "days such as Mon-Thu or Sat,Sun"}
	if nearest := nearestDays(text); areDays(nearest) {
		f.Suggestion = nearest
	}
	return f
}

func areDays(text string) bool {
	for _, part := range strings.Split(text, ",") {
		first, last, _ := strings.Cut(strings.TrimSpace(part), "-")
		for _, day := range []string{first, cmp.Or(last, first)} {
			if len(day) != 3 || !strings.Contains(weekdays, day) {
				return false
			}
		}
	}
	return true
}

var wordRE = regexp.MustCompile(`[A-Za-z]+`)

// nearestDays returns a list with those days in the correct format that only are written differently.
func nearestDays(text string) string {
	return wordRE.ReplaceAllStringFunc(text, func(day string) string {
		for _, known := range strings.Fields(weekdays) {
			if len(day) >= 3 && strings.EqualFold(day[:3], known) {
				return known
			}
		}
		return day
	})
}

func checkHours(text string) *strict.Fault {
	from, to, _ := strings.Cut(text, "-")
	return strict.FaultUnless(hoursRE.MatchString(text) && from != to, "bad-value", "invalid time span %q", text, `such as "09:00-16:00", or over midnight "22:00-06:00"`)
}
