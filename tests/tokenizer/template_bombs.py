"""Templates that make much from little, or take long over one step: by what they do it with."""

BIG = "{% set b = 'a' * 600000 %}"
ROUNDS = "{% for i in range(99999) %}"
MUTATED = (  # namespaces that each print the next one twice
    "{% set n = namespace(l=[]) %}{% set n.next = '' %}"
    "{% for i in range(40) %}{% set m = namespace() %}{% set m.a = n.next %}{% set m.b = n.next %}"
    "{% set n.next = m %}{% endfor %}"
)

BOMBS: dict[str, str] = {
    "strftime": '{{ strftime_now("%999d" * 200000) }}',
    "strftime width": '{{ strftime_now("%" ~ "9" * 200 ~ "d") }}'
    + ROUNDS
    + '{{ strftime_now("%9999d" * 50) }}{% endfor %}',
    "split": '{{ ("a" * 2000000).split("a")|length }}',
    "rsplit": '{{ ("a" * 2000000).rsplit("a")|length }}',
    "split blanks": '{{ ("a " * 1000000).split()|length }}',
    "splitlines": '{{ ("\\n" * 2000000).splitlines()|length }}',
    "splitlines of other ends": '{{ ("\\x0c" * 2000000).splitlines()|length }}',
    "replace": '{{ ("a" * 2000000).replace("a", "b")|length }}',
    "list": '{{ ("a" * 2000000)|list }}',
    "batch": '{{ ("a" * 2000000)|batch(3)|list }}',
    "slice": ROUNDS + "{{ [1]|slice(100000)|list|length }}{% endfor %}",
    "batch padded": "{{ range(9999)|batch(1)|map('batch', 100000, 0)|map('list')|list|length }}",
    "unique": '{{ ("a" * 2000000)|unique|list }}',
    "sort": '{{ ("a" * 2000000)|sort }}',
    "sort references": "{{ (['a'] * 2000000)|sort|length }}",
    "sort by many keys": "{{ (['ab'] * 9999)|sort(attribute='0' + ',0' * 100) }}",
    "sort by a long path": "{{ (['ab'] * 999)|sort(attribute='0' + ',0' * 100000) }}",
    "sort by long keys": "{% set n = namespace(x='') %}"
    "{% set l = [n] * 9999 %}{% set n.x = 'A' * 500000 %}{{ l|sort(attribute='x') }}",
    "groupby": '{{ ("a" * 2000000)|groupby("x") }}',
    "groupby characters": "{{ (['ab'] * 400000)|groupby('0') }}",
    "dictsort": "{{ {}.fromkeys(range(99999), 'A')|dictsort(by='value') }}" * 30,
    "fromkeys": ROUNDS + "{% set x = {}.fromkeys(range(99999)) %}{% endfor %}",
    "dict copies": "{% set d = {}.fromkeys(range(9999)) %}{% set n = namespace(x=[]) %}"
    + ROUNDS
    + "{% set n.x = (n.x, dict(d)) %}{% endfor %}",
    "map": "{{ range(99999)|map('string')|list }}" * 9,
    "map of generators": ROUNDS + "{{ range(99999)|map('map', 'string')|list|length }}{% endfor %}",
    "select": "{% set n = namespace(x=[]) %}" + ROUNDS + "{% set n.x = (n.x, range(99999)|select|list) %}{% endfor %}",
    "reverse": "{{ range(99999)|map('string')|reverse|list }}" * 9,
    "spread": "{{ dict(*('a' * 2000000)) }}",
    "spread into a filter": "{{ 1|default(*('a' * 2000000)) }}",
    "join": '{{ ("a" * 2000000)|join }}',
    "join of a method": '{{ ",".join("a" * 2000000) }}',
    "join long": BIG + "{{ b.join('a' * 1000) }}",
    "lists": "{{ [0] * 4000000 }}",
    "tuples": "{{ (0, 1) * 2000000 }}",
    "format widths": "{{ '%(a)999d' * 200000 % {'a': 1} }}",
    "format width behind a key": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "format width behind a nested key": "{{ '%(a(b)c)1000000000d' % {'a(b)c': 1} }}",
    "format precision": "{{ '%.999999999f' % 1 }}",
    "format star": "{{ '%*d' % (1000000000, 1) }}",
    "format precision star": "{{ '%.*f' % (1000000000, 1) }}",
    "format long values": BIG + "{{ '%(a)s' * 10000 % {'a': b} }}",
    "format floats": "{{ '%(a)f' * 400000 % {'a': 1e308} }}",
    "tojson indent": "{% set n = namespace(x=[1]) %}{% for i in range(400) %}{% set n.x = [n.x, 1] %}{% endfor %}"
    "{{ n.x|tojson(indent=64) }}" * 1 + ROUNDS + "{{ n.x|tojson(indent=64)|length }}{% endfor %}",
    "tojson deep": "{{ " + "[" * 20 + "[1] * 30000" + "]" * 20 + "|tojson(indent=64) }}",
    "tojson escapes": "{{ ('\\x01' * 1500000)|tojson|length }}",
    "tojson integers": "{{ ([10 ** 250] * 400000)|tojson|length }}",
    "printed integers": "{{ [10 ** 250] * 400000 }}",
    "indent": "{{ ('\\n' * 2000000)|indent(64, true, true)|length }}",
    "indent other ends": "{{ ('\\x0b' * 2000000)|indent(64, true, true)|length }}",
    "upper": "{{ ('é' * 1000000)|upper|length }}{{ ('中a' * 1000000)|upper|length }}",
    "title": "{{ ('中a' * 1000000)|title|length }}",
    "title of words": "{{ ('a-' * 900000)|title|length }}",
    "strip": BIG + "{{ b.strip('b' * 500000 ~ 'a') }}",
    "trim": BIG + "{{ b|trim('b' * 500000 ~ 'a') }}",
    "rfind": BIG + "{{ b.rfind('ab' ~ 'a' * 500000) }}",
    "rpartition": BIG + "{{ b.rpartition('ab' ~ 'a' * 500000) }}",
    "rsplit with a long separator": BIG + "{{ b.rsplit('ab' ~ 'a' * 500000) }}",
    "find": BIG + ROUNDS + "{{ b.find('ab' ~ 'a' * 100) }}{% endfor %}",
    "long numbers": "{% set x = '1' * 1500000 %}" + ROUNDS + "{{ x|float }}{{ x|int }}{% endfor %}",
    "big integers": "{% set x = ('f' * 1000000)|int(base=16) %}{{ x // (x - 1) }}",
    "text of the template": ROUNDS + "x" * 100_000 + "{% endfor %}",
    "text in a block": ROUNDS + "{% set x %}" + "x" * 100_000 + "{% endset %}{% endfor %}",
    "text in a macro": "{% macro f() %}" + ROUNDS + "x" * 100_000 + "{% endfor %}{% endmacro %}{{ f() }}",
    "texts kept in namespaces": "{% set n = namespace(x=0) %}"
    + ROUNDS
    + "{% set y %}"
    + "x" * 100_000
    + "{% endset %}{% set n.x = namespace(a=n.x, b=y) %}{% endfor %}",
    "small texts": ROUNDS + "{% for j in range(99) %}{{ 'a' }}{{ j }}{% endfor %}{% endfor %}",
    "empty loops": ROUNDS + "{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "lengths of filtered loops": "{% macro f(n) %}{% for i in range(99999) if true %}{% if loop.length %}"
    "{{ f(n + 1) }}{% endif %}{% endfor %}{% endmacro %}{{ f(0) }}",
    "namespaces": "{% set n = namespace(x=0) %}{% for i in range(60) %}{% set n.x = namespace(a=n.x, b=n.x) %}"
    "{% endfor %}{{ n.x }}",
    "namespaces printed": MUTATED + "{{ n.next }}",
    "namespaces joined": MUTATED + "{{ n.next ~ '' }}",
    "namespaces in text": MUTATED + "{{ n.next|string|length }}",
    "namespaces in upper": MUTATED + "{{ n.next|upper|length }}",
    "namespaces formatted": MUTATED + "{{ '%s' % n.next }}",
    "namespaces in a view": MUTATED + "{{ {'a': n.next}.values()|string|length }}",
    "namespaces raised": MUTATED + "{{ raise_exception(n.next) }}",
    "macro recursion": "{% macro f(n) %}"
    + "x" * 1000
    + "{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "loop.cycle": ROUNDS + "{% for j in range(99) %}{{ loop.cycle('a', 'b') }}{% endfor %}{% endfor %}",
    "comparison": "{% set l = ['a'] * 4000000 %}{{ 'b' in l }}",
    "urlize": "{{ 'http://a.b ' * 300000|urlize }}",
    "center": "{{ 'a'|center(100000000) }}",
    "zfill": "{{ 'a'.zfill(100000000) }}",
    "expandtabs": "{{ ('\\t' * 1000).expandtabs(1000000) }}",
    "wordwrap": "{{ ('a ' * 1000000)|wordwrap(1) }}",
}
