#!/usr/bin/env python3
"""Makes test/data/jinja_language.json: what the Jinja environment of transformers renders of small
templates, one idea each. What it refuses is in the file as an error.

    pip install jinja2==3.1.6 transformers==5.24.0
    python3 tools/make_jinja_goldens.py test/data/jinja_language.json
"""
import copy
import datetime
import json
import sys

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

VARIABLES = {
    "s": "Hello, World", "empty": "", "u": "Grüße, Köln ß 你好 👩‍👩‍👧", "lines": "a\nb\r\nc\n\nd\n", "spaces": " \t two  words \n",
    "n": 7, "neg": -3, "big": 123456789012345678901234567890, "f": 2.5, "small": 1e-07, "large": 1e22, "t": True, "none": None,
    "list": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3, [4, "x"]]], "mixed": [1, "1", 1.0, True, None],
    "d": {"b": 1, "a": "x", "items": "hidden", "Z": None}, "quote": "it's \"quoted\" \\ back\tslash\u0007",
    "people": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25}, {"name": "Cy", "age": 30, "tags": []}],
    "html": "<a href=\"x\">&'</a>", "num": " 42 ", "hex": "ff", "nul": "a\u0000b",
}

# Expressions: each becomes {{ expression }}.
EXPRESSIONS = """
s; s|upper; s|lower; u|upper; u|lower; u|title; s|capitalize; u|length; u[0]; u[-1]; u[2:5]; u[::-1]; s[::2]; s[-5:]; s[:-1]; s[3:1]; s[100:]
s[1:8:3]; s[8:1:-2]; s[-100:3]; s[:100]; list[::-1]; list[1:]; list[-1]; list[5] is defined; list[0:2]; list[::2]; words[-2:]
1 + 2; 7 // 2; -7 // 2; 7 % 3; -7 % 3; 7 % -3; 7 / 2; 2 ** 10; 2 ** -1; -2 ** 2; 1.5 + 1; 6 / 3; 7.5 // 2; -7.5 % 2; 0.1 + 0.2; 1e3; 1_000; 0x1f; 0b101; 0o17
1 < 2 < 3; 1 < 2 > 3; 1 == 1.0; "1" == 1; true == 1; none == false; "a" < "b"; [1, 2] < [1, 3]; (1, 2) == (1, 2); [1] == (1,); {"a": 1} == {"a": 1.0}
"a" in "abc"; 1 in list; "b" in d; "x" not in d; none in mixed; "Wor" in s; 5 not in list; not 1 in list
true and 0; 0 or "x"; "" or none; not none; not (1 and 2); 1 and 2 or 3; none and missing.x
"a" ~ 1 ~ none ~ true ~ 2.0; "a" "b" 'c'; "x" * 3; 3 * "ab"; [1] * 2; [1] + [2, 3]; (1,) + (2,)
"yes" if n > 5 else "no"; "yes" if n > 50; ("a" if none else "b") ~ "c"; 1 if true if false else 2
missing; missing is defined; missing|default("d"); empty|default("d"); empty|default("d", true); none|default("d"); none|default("d", boolean=true); d.missing is undefined
d.b; d["a"]; d["items"]; d.get("b"); d.get("q"); d.get("q", 5); d.keys()|list; d.values()|list; d.items()|list; d|items|list; d|length; d|list; d.Z is none
people[0].name; people[0]["age"]; people[1].tags is defined; people|map(attribute="name")|list; people|map(attribute="tags.0", default="-")|list
people|selectattr("age", "equalto", 30)|map(attribute="name")|join(", "); people|rejectattr("tags")|list|length; people|selectattr("tags", "defined")|list|length; people|sum(attribute="age")
people|groupby("age")|list|length; people|sort(attribute="name")|map(attribute="name")|list; people|sort(attribute="age,name")|map(attribute="name")|list; people|sort(attribute="age", reverse=true)|map(attribute="name")|list; people|max(attribute="age"); people|min(attribute="name")
list|sort; list|sort(reverse=true); words|sort; words|sort(case_sensitive=true); words|unique|list; mixed|unique|list; list|max; list|min; list|sum; list|first; list|last; []|first; list|reverse|list; s|reverse; list|length; list|join; list|join("-"); words|join(", ")
list|map("string")|list; words|map("upper")|join; list|select("odd")|list; list|reject("odd")|list; mixed|select|list; mixed|reject("none")|list; list|select("gt", 1)|list; list|select(">", 1)|list; list|batch(2)|list; list|batch(2, "x")|list; list|list
d|dictsort; d|dictsort(true); d|dictsort(reverse=true); {"b": 2, "a": 1}|dictsort(by="value"); {"b": 2, "a": 1}|dictsort(false, "value", true)
s|replace("l", "L"); s|replace("l", "L", 2); s.replace("o", "0"); s.replace("o", "0", 1); "abc".replace("", "-"); "aaa".replace("aa", "b"); 1|replace(1, 2)
spaces|trim; spaces.strip(); spaces.lstrip(); spaces.rstrip(); "xxaxx".strip("x"); "xyaxy".lstrip("yx"); "abc".rstrip("cb"); "xxaxx"|trim("x"); "äöa".strip("äö"); n|trim
s.split(); s.split(","); s.split("l", 1); spaces.split(); spaces.split(" "); "a,b,,c".split(","); "".split(","); "".split(); "a b c".split(none, 1); "a b c d".rsplit(" ", 2); "a  b  c".rsplit(none, 1); " a b ".split(maxsplit=1); "abc".rsplit("b"); s.split(", ")[1]
lines.splitlines(); lines.splitlines(true); "a=b=c".partition("="); "a=b=c".rpartition("="); "abc".partition("x"); "abc".rpartition("x")
s.startswith("Hell"); s.startswith(("x", "H")); s.endswith("ld"); s.startswith("ello", 1); s.endswith("o", 0, 5); "".startswith(""); s.find("o"); s.find("o", 5); s.rfind("o"); s.find("zz"); u.find("你"); s.index("W"); s.count("l"); "aaa".count("aa"); "abc".count("")
s.upper(); s.lower(); s.title(); "hello wORLD it's".title(); "hello wORLD it's"|title; s.swapcase(); u.capitalize(); "ß".upper(); "ÄÖ".lower(); "x".join(words); ",".join("abc"); "ab".join([])
"12".isdigit(); "1a".isalnum(); "ab".isalpha(); " ".isspace(); "".isdigit(); "AB".isupper(); "Ab".islower(); "ab1".islower(); "12"|int + 1; "abc".isascii(); "ä".isascii()
"a".ljust(3) ~ "|"; "a".rjust(3, "*"); "ab".center(5, "-"); "abc".center(6, "-"); "-5".zfill(4); "abc".removeprefix("ab"); "abc".removesuffix("bc"); "abc".removeprefix("x")
num|int; "x"|int; "x"|int(5); "3.9"|int; "ff"|int(0, 16); 3.9|int; -3.9|int; true|int; none|int; "1e3"|float; "x"|float; "2.5"|float; 3|float; 7|string; 2.5|string; none|string; list|string; d|string
3.14159|round(2); 2.5|round; 3.5|round; 7|round; 2.675|round(2); 3.14159|round(2, "floor"); 3.14159|round(2, "ceil"); -3|abs; -2.5|abs
f; small; large; 1e16; 123456789.123; 1.0; 100000000000000000.0; -0.0; 1/3; big; big|tojson; n|tojson; f|tojson; t|tojson; none|tojson
s|tojson; quote|tojson; u|tojson; u|tojson(ensure_ascii=true); d|tojson; nested|tojson; d|tojson(indent=2); nested|tojson(indent=4); []|tojson(indent=2); {}|tojson(indent=2); d|tojson(separators=(",", ":")); d|tojson(sort_keys=true); {"a": [1, {"b": 2}]}|tojson(indent=1, separators=(",", "=")); d|tojson(false, 2); {1: 2, none: 3, true: 4, 2.5: 5}|tojson; html|tojson; nul|tojson; "\\x7f\\u2028"|tojson; "\\u00e9"|tojson(ensure_ascii=true); nested|tojson(indent="--"); (1, 2)|tojson; small|tojson; large|tojson
quote; quote|string|length; [quote]; ["it's"]; ["\\n\\t\\\\"]; ['"']; ["ä\\x00\\u200b\\U0001f600"]; (1,); (); (1, 2); []; {}; {"a": none, 1: true}; [none, true, 1.0]; nested; d; [[]]; {"k": [1, {"z": "y"}]}; [u]
html|e; html|escape; html|safe; "%s is %d" % ("x", 5); "%05.2f|%x|%+d|%%" % (3.14159, 255, 7); "%-5s|%5s" % ("a", "b"); "%s" % none; "%s" % "x"; "%(a)s" % {"a": 1}; "%s %s"|format("a", 2)
"{} {}".format(1, "b"); "{1} {0}".format("a", "b"); "{x}-{y}".format(x=1, y=none); "{{}}".format(); "{:>5}|{:<5}|{:^5}".format("a", "b", "c"); "{:.2f}".format(3.14159); "{:05d}".format(42); "{:x}".format(255); "{:*^7}".format("m"); "{:5}|".format(3); "{:+d}".format(5)
lines|indent; lines|indent(2, true); lines|indent(2, false, true); "a\\nb"|indent("> "); "long text here and more of it"|truncate(12); "long text here and more of it"|truncate(12, true, "..", 0); "short"|truncate(3); "abcdefgh"|truncate(5, true, "")
n is number; f is float; n is integer; t is boolean; t is integer; t is number; s is string; list is iterable; s is iterable; d is iterable; n is iterable; list is sequence; d is sequence; s is sequence; d is mapping; list is mapping; none is none; missing is none; n is odd; n is even; n is divisibleby 7; n is divisibleby(2); n is eq 7; n is equalto(7); n is ne 7; n is gt 5; n is lessthan 5; n is ge(7); 1 is in list; 9 is in(list); "x" is sameas "x"; none is sameas none; "ABC" is upper; "abc" is lower; true is true; 1 is true; false is false; n is not string; n is not defined; d.items is callable; range is callable; "upper" is filter; "odd" is test; missing is iterable; missing is sequence; d.items() is sequence; d.items() is iterable; d|items is iterable
range(3)|list; range(1, 4)|list; range(5, 0, -2)|list; range(0)|list; dict(a=1, b=2); dict({"x": 1}, y=2); dict([("a", 1)]); namespace(a=1).a; range(3)|length; range(10)[2] is defined
"a\\nb"; 'a\\'b'; "tab\\there"; "\\u4f60"; "\\x41"; "\\101"; "\\q"; "\\\\n"; '\\"'; "\\U0001F600"
list.index(1); list.count(1); (1, 2, 1).count(1); words|first|upper; (words|last) ~ "!"; -n|abs; n|string ~ "x"; [n, f]|map("int")|list; s|list; s|first; s|last; empty|first is defined; words|attr("x") is defined; d|attr("b") is defined
strftime_now("%Y-%m-%d"); strftime_now("%d %b %Y %H:%M:%S"); strftime_now("%A, %B %d"); strftime_now("%j %U %p %I"); strftime_now("")
""".strip()

# Whole templates.
TEMPLATES = [
    # Whitespace
    "a\n", "a\n\n", "a\r\nb\rc", "  {% if t %}\n  x\n  {% endif %}\n y", "a {%- if t -%}  b  {%- endif -%} c", "a\n  {%+ if t %}b{% endif +%}\n c", "{{ 1 }}\n{{ 2 }}", "a \n {{- 1 -}} \n b", "{# c #}\nx", "  {# c #}\n  x", "a {#- c -#} b",
    "x {# {{ no }} #} y", "{% raw %}{{ x }}{% endraw %}", "a {%- raw -%}  {% if %}  {%- endraw -%} b", "  {% raw %}\n x {% endraw %}\n y", "{{ '}}' }}", "{{ '%}' }}{% if '%}' %}x{% endif %}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{{'a': 1}['a']}}",
    "\t{% if t %}\tx{% endif %}\n", "a\n\n  {% set x = 1 %}\n\nb", "{% if t %}\n\n\nx{% endif %}", "x{% set y = 1 %}\ny", "   {%- set y = 1 %}   z", "{{- 'a' }}  {{ 'b' -}}  ", "\u00a0{%- if t %}x{% endif -%}\u2003y", "{%if t%}a{%endif%}", "{%-if t-%}a{%-endif-%}", "a\n    {%- if t %}\n    b\n    {%- endif %}\n", "  {{ 1 }}", "{% for x in list -%}\n {{ x }}\n{%- endfor %}",
    # Loops
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in list if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ loop.last }} {% endfor %}", "{% for x in list if x > 9 %}a{% else %}b{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'aß你' %}[{{ c }}]{% endfor %}", "{% for (a, b) in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in list %}{% if loop.index == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in list %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in list %}{% for y in list %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% for x in nested recursive %}{% if x is iterable and x is not string %}[{{ loop(x) }}]{% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}", "{% for x in list %}{% endfor %}{{ x is defined }}", "{% for i in range(3) %}{{ i }}{% endfor %}", "{% for x in [1, 2] %}{% for y in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in list recursive %}{{ x }}{% endfor %}",
    # Scopes
    "{% set x = 1 %}{% for i in list %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% for i in list %}{{ x }}{% set x = 9 %}{% endfor %}", "{% set ns = namespace(x=0) %}{% for i in list %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% if t %}{% set x = 5 %}{% endif %}{{ x }}", "{% if false %}{% set x = 5 %}{% endif %}{{ x is defined }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set a = 1, 2 %}{{ a }}", "{% set ns = namespace(a=1, b=[]) %}{% set ns.c = 3 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d is defined }}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}", "{% set x %}in {{ n }}{% endset %}[{{ x }}]", "{% set x | upper %}in {{ n }}{% endset %}[{{ x }}]", "{% set x | replace('i', 'o') | upper | trim %} in {% endset %}[{{ x }}]", "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}", "{% generation %}{{ s }}{% endgeneration %}", "{% set x = 1 %}{% set x %}{{ x }}{% endset %}{{ x }}",
    # Macros
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ n }}{% endcall %}", "{% macro m() %}{% for x in list %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(y) m() %}[{{ y }}]{% endcall %}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ [1, 2]|map('string')|join }}{{ m(m(1)) }}", "{% macro m() %}a{% endmacro %}{{ m()|upper }}{{ m() ~ 'b' }}{{ m()|length }}", "{% macro m() -%}\n  x\n{%- endmacro %}[{{ m() }}]", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}{{ m.name }}{% endmacro %}{{ m() }}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(a, b, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 1, 'b': 2, 'c': 3}) }}", "{% macro m(s) %}{{ s }}{% endmacro %}{{ m(people[0]) }}", "{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}",
    # Conditions
    "{% if 0 %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if n is defined and n is not none and n > 5 %}x{% endif %}", "{% if not missing %}x{% endif %}", "{% if missing is defined and missing.x %}x{% else %}y{% endif %}", "{% if list and d and s %}x{% endif %}", "{% if empty or [] or {} or 0 or none %}x{% else %}y{% endif %}", "{% if (1, 2) %}x{% endif %}", "{% if d.a == 'x' and (n in [7] or missing.y) %}x{% endif %}", "{{ 'a' if missing is defined else 'b' }}", "{% if false %}{{ x|nofilter }}{% endif %}ok", "{% if people|selectattr('age', 'gt', 28)|list|length > 1 %}x{% endif %}",
    # Generators are read once
    "{% set g = list|map('string') %}{{ g|list }}{{ g|list }}", "{% set g = list|select('odd') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% else %}gone{% endfor %}", "{% set v = d.items() %}{{ v|length }}{{ v|list|length }}{{ v|list|length }}",
    # Errors
    "{{ missing.x }}", "{{ missing + 1 }}", "{{ missing() }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ none + 1 }}", "{{ none|length }}", "{{ 1 // 0 }}", "{{ 5|join }}", "{{ none|join }}", "{% for x in 5 %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{{ raise_exception('no: ' ~ n) }}", "{{ list.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ 'abc'.nope() }}", "{{ 1 < 'a' }}", "{{ list|sort(attribute='x') }}", "{{ [1, 'a']|sort }}", "{{ {[1]: 2} }}", "{{ range(1000000) }}", "{{ 'abc'.index('z') }}", "{{ s.split('') }}", "{{ 'a'.join([1]) }}", "{{ '%d' % 'x' }}", "{{ '%s %s' % 'x' }}", "{{ '{} {}'.format(1) }}", "{{ list|tojson|fromjson }}", "{{ x is nope }}", "{% if %}{% endif %}", "{% if x %}", "{% endif %}", "{{ 1 + }}", "{{ (1 }}", "{{ 'a }}", "{% for x %}{% endfor %}", "{% nope %}", "{% set %}", "{# a", "{{ a b }}", "{% break %}", "{{ namespace|tojson }}", "{{ missing|tojson }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% set d.x = 1 %}", "{{ list[::0] }}", "{{ 'a' in 5 }}", "{{ 1 in 'a' }}", "{{ people|map('nope')|list }}", "{{ -'a' }}", "{{ list|first|nope }}", "{{ [1, 2]|sum(start='a') }}", "{% call 5 %}{% endcall %}", "{{ d|dictsort(by='x') }}", "{{ strftime_now(5) }}", "{{ list|map('string')|length }}", "{{ list|map('string')|tojson }}", "{{ caller() }}", "{% set x = loop %}{{ x.index }}", "{{ s.a.b }}",
]

# What each filter makes of values of every kind, those that are false above all.
OPERANDS = ["missing", "d.Z", "false", "0", "0.0", "empty", "[]", "{}", "()", "range(0)", "list", "words", "people", "d", "s", "n", "f", "t",
            "(html|safe)", "([html|safe, html])"]
FILTERS = ["select", "reject", "select('string')", "reject('defined')", "selectattr('age')", "rejectattr('age')",
           "selectattr('age', 'equalto', 30)", "rejectattr('age', 'nope')", "map('upper')", "map(attribute='age')", "map('nope')", "map()"]
OTHERS = ["length", "first", "last", "join('<')", "sort", "unique", "sum", "min", "reverse", "batch(2)", "items", "dictsort", "string", "trim",
          "default('x')", "default('x', true)", "tojson", "upper", "int", "float", "abs", "groupby('age')", "replace('a', '<')", "e", "safe"]

# Markup: what joins it is escaped, and what is made of it is Markup, which `e` shows.
MARKUP = """
html|safe; html|e; html|safe|e; html|e|e; html|forceescape; html|e|forceescape; html|safe is escaped; html is escaped; (html|e)|length; [html|safe, html]; {"k": html|e}; (html|safe,); missing|safe; none|safe; n|safe; list|safe; missing|e; none|e; n|e; list|e; d|e; words|map("e")|list; [html]|map("safe")|list
(html|safe) + html; html + (html|safe); (html|safe) + (html|e); (html|e) + "<" + ">"; ("<"|safe) + "<" ~ "<"; "<" ~ ("<"|safe) ~ "<"; ("<" ~ ("<"|safe))|e; ("<"|safe) + 1; 1 + ("<"|safe); ("<"|safe) + none; ("<"|safe) + missing; missing + ("<"|safe); ("<"|safe) * 2; 2 * ("<"|safe); (("<"|safe) * 2) + "<"
("<"|safe) == "<"; ("<"|safe) < "="; "<" in ("<a"|safe); ("<"|safe) in "<a"; {"<": 1}["<"|safe]; ("<a>"|safe)[0] + "<"; ("<a>"|safe)[1:] + "<"; ("<a>"|safe)[::-1] + "<"; ("<a>"|safe)|first + "<"; ("<a>"|safe)|last + "<"; ("<a>"|safe)|reverse + "<"; ("<a>"|safe)|list; "%s" % ("<"|safe); ("%s"|safe) % "<"; ("%s %s"|safe) % ("<", "<"|safe); ("%(a)s"|safe) % {"a": "<"}; ("%5s|"|safe) % "<"; ("%d"|safe) % 5; ("%s"|safe) % ["<"]; ("<%s>"|safe)|format("<"); "%s"|format("<"|safe); (("%s"|safe) % 1)|e
"{}".format("<"|safe); ("{}"|safe).format("<"); ("{:>5}"|safe).format("<"); ("{}"|safe).format("<"|safe); ("{:>5}"|safe).format("<"|safe); ("{a}"|safe).format(a="<"); ("{}<"|safe).format(1) + "<"
("<a>"|safe).upper() + "<"; ("<A>"|safe).lower() + "<"; ("<a>"|safe).title() + "<"; ("<a>"|safe).capitalize() + "<"; ("<a>"|safe).swapcase() + "<"; (" < "|safe).strip() + "<"; (" < "|safe).lstrip() + "<"; (" < "|safe).rstrip() + "<"; ("<a"|safe).replace("a", "<") + "<"; ("<a"|safe).replace("<", ">"|safe); ("<a,b"|safe).split(",")[0] + "<"; ("<a,b"|safe).rsplit(",")|list; ("<\\n<"|safe).splitlines()|list; ("<=<"|safe).partition("="); ("<=<"|safe).rpartition("=")[2] + "<"; ("<"|safe).join(["<", "<"|safe]); "<".join(["<", "<"|safe]) + "<"; ("<"|safe).zfill(3) + "<"; ("<"|safe).ljust(3) + "<"; ("<"|safe).rjust(3, "-") + "<"; ("<"|safe).center(3, "<"); ("<a"|safe).removeprefix("<") + "<"; ("<a"|safe).removesuffix("a") + "<"; ("<"|safe).startswith("<"); ("<"|safe).find("<"); ("<"|safe).isalpha()
("<a>"|safe)|upper + "<"; ("<a>"|safe)|lower + "<"; ("<a>"|safe)|title + "<"; ("<a>"|safe)|capitalize + "<"; (" < "|safe)|trim + "<"; ("<a"|safe)|replace("a", "<") + "<"; ("<"|safe)|string + "<"; ("<"|safe)|default("x") + "<"; missing|default("<"|safe) + "<"; ("<\\n<"|safe)|indent(2) + "<"; ("<\\n<"|safe)|indent("<"); ("<"|safe)|truncate(1) + "<"; ("<aaaaaaaaaa bbbbbbb"|safe)|truncate(9, true, "<", 0); ["<", "<"|safe]|join("<"); ["a"]|join("<"|safe) + "<"; ("<"|safe)|tojson; ("<"|safe)|tojson + "<"; ("5"|safe)|int + 1; [("b"|safe), "a"]|sort; ["<"|safe, "<"]|unique|list; ("<"|safe)|e|upper + "<"; [1]|map("safe")|first + "<"; dict(a="<"|safe).a + "<"
""".strip()

# Statements around Markup, conditions on what is false, and system messages without a text.
MORE_TEMPLATES = [
    "{% filter e %}<{{ '<'|safe }}{% endfilter %}", "{% filter safe %}<{% endfilter %}", "{% set x %}<{{ html|e }}{% endset %}{{ x|e }}", "{% set x | e %}<{% endset %}{{ x + '<' }}", "{% macro m(a) %}<{{ a }}{% endmacro %}{{ m('<'|safe)|e }}", "{% macro m(a) %}{{ a is escaped }}{% endmacro %}{{ m('<'|safe) }}{{ m('<') }}", "{% set ns = namespace(x='<'|safe) %}{% set ns.x = ns.x + '<' %}{{ ns.x }}", "{% for c in '<a'|safe %}{{ c is escaped }}{% endfor %}", "{% if '<'|safe %}x{% endif %}{% if ''|safe %}y{% endif %}", "{% for x in [1, '<'|safe] %}{{ x + x }}{% endfor %}",
    "{% for x in none|selectattr('a') %}a{% else %}b{% endfor %}", "{% for x in none|map('upper') %}a{% else %}b{% endfor %}", "{% if none|select|list %}a{% else %}b{% endif %}", "{{ (none|select|list)|length }}", "{{ (0|map(attribute='x')|list) + [1] }}", "{{ false|rejectattr('x')|map(attribute='y')|join }}", "{% for x in none %}{% endfor %}", "{{ none|list }}", "{{ 0|list }}", "{{ false|join }}", "{{ none|first }}", "{{ none|sum }}", "{{ none|unique|list }}", "{{ none|batch(2)|list }}", "{{ none|groupby('x')|list }}", "{{ none|reverse }}", "{{ none|items|list }}", "{{ missing|items|list }}", "{{ none|sort }}", "{{ missing|sort }}", "{{ missing|unique|list }}", "{{ missing|groupby('x')|list }}", "{{ people|groupby('tags', default=[])|map('first')|list }}", "{{ people|groupby('x', 'y')|map('last')|map('length')|list }}", "{{ [{}]|groupby('x')|length }}", "{{ [{}]|sort(attribute='x') }}", "{{ [{}, {'x': 1}]|sort(attribute='x') }}", "{{ [[1], [1]]|unique|list }}", "{{ [(1,), (1,)]|unique|list }}", "{{ 'a' % list }}", "{{ '%s' % missing }}", "{{ 'a' % missing }}", "{{ list in d }}", "{{ t[1:] }}", "{{ d[1:] }}", "{{ n|indent }}", "{{ missing|indent }}", "{{ list|truncate }}", "{{ n|truncate }}", "{{ missing|truncate }}", "{{ nested|map('truncate', 1)|list }}", "{{ missing|batch(2)|list }}",
    "{% set m = [{'role': 'system', 'content': ''}, {'role': 'user', 'content': 'q'}] %}{% if m[0].role == 'system' %}[{{ m[0].content }}]{% endif %}{{ m|selectattr('content')|list|length }}", "{% set m = {'content': none} %}{{ m.content is none }}{{ m.content or 'x' }}{{ m.content is string }}", "{{ {'content': none}.content + 'x' }}", "{{ {'content': none}.content|trim }}", "{{ {}.content|trim }}", "{% for c in {'content': none}.content %}{% endfor %}", "{{ 'x' if {'content': ''}.content is defined else 'y' }}",
]


def generated():
    # A generator prints its address.
    lazy = ("unique", "reverse", "batch", "items")
    names = [f"{name}|list" for name in FILTERS] + [name + ("|list" if name.startswith(lazy) else "") for name in OTHERS]
    # The interpreter has no type for ranges: they print as lists.
    return [f"{{{{ {operand}|{name} }}}}" for operand in OPERANDS for name in names
            if not operand.startswith("range") or "|list" in name]


def fixed(format_text):
    return datetime.datetime(2026, 11, 21, 12, 34, 56).strftime(format_text)


def render(source):
    try:
        template = _compile_jinja_template(source)
        template.globals["strftime_now"] = fixed
        return {"template": source, "text": template.render(**copy.deepcopy(VARIABLES))}
    except Exception as error:  # what it refuses is a golden, too
        return {"template": source, "error": f"{type(error).__name__}: {error}"}


def main():
    sources = ["{{ " + e.strip() + " }}" for line in (EXPRESSIONS + "\n" + MARKUP).splitlines()
               for e in line.replace("\\\\", "\\").split("; ")]
    sources += TEMPLATES + MORE_TEMPLATES + generated()
    goldens = {"made_with": f"jinja2 {jinja2.__version__}, transformers {transformers.__version__}",
               "variables": VARIABLES, "cases": [render(source) for source in sources]}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(goldens, file, ensure_ascii=False, indent=0)
        file.write("\n")
    errors = sum("error" in case for case in goldens["cases"])
    print(f"{len(goldens['cases'])} cases, {errors} of them errors")


if __name__ == "__main__":
    main()
