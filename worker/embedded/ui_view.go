package embedded

import (
	"html/template"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"
)

// View is a list of workflows that the root of the Web UI opens. The UI keeps columns and saved views in the browser alone, and takes no
// columns from a URL, so the page at the root stores them, unless the user has columns already.
type View struct {
	Name    string   // of the saved view
	Query   string   // as of `temporal workflow list --query`
	Columns []string // names of columns and of search attributes
}

// viewPage sets the columns on the first visit, and saves the view, unless the browser stores nothing. The key and the form of the columns
// are those of the ui-server in go.mod.
var viewPage = template.Must(template.New("view").Parse(`<!doctype html>
<title>{{.Name}}</title>
<noscript>The Web UI of Temporal needs a browser with scripts.</noscript>
<script>
const key = "namespace-workflow-table-columns";
let to = {{.List}};
try {
  const columns = JSON.parse(localStorage.getItem(key) ?? "{}");
  if (!columns[{{.Namespace}}]) {
    columns[{{.Namespace}}] = {{.Columns}};
    localStorage.setItem(key, JSON.stringify(columns));
    to = {{.Save}};
  }
} catch (error) {
  console.error(error);
}
location.replace(to);
</script>
`))

// serve answers at the root.
func (v View) serve(e *echo.Echo) {
	type column struct {
		Label string `json:"label"`
	}
	columns := []column{}
	for _, name := range v.Columns {
		columns = append(columns, column{name})
	}
	list := "/namespaces/" + Namespace + "/workflows?" + url.Values{"query": {v.Query}}.Encode()
	data := map[string]any{
		"Name": v.Name, "Namespace": Namespace, "Columns": columns, "List": list, "Save": list + "&" + url.Values{"savedQuery": {v.Name}}.Encode(),
	}
	e.GET("/", func(c echo.Context) error {
		c.Response().Header().Set(echo.HeaderContentType, echo.MIMETextHTMLCharsetUTF8)
		c.Response().WriteHeader(http.StatusOK)
		return viewPage.Execute(c.Response(), data)
	})
}
