"""The words that prompts are made of: common English, one or two tokens each in usual vocabularies.

Part of the workload's definition: a change here changes every prompt, so the golden hashes of
the tests change with it.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


NOUNS = _words(
    """
    answer apple arm army art author baby bag ball bank base bed bell bird board boat body book
    bottle box boy branch bread bridge brother building business camp captain car card care case
    castle cat chair chance child church circle city class clock cloud coast coat coffee color
    company corner country court cover cow creature crowd daughter day desk dinner doctor dog door
    dream dress driver dust ear earth edge egg engine evening eye face fact family farm farmer
    father field finger fire fish flag floor flower food foot forest friend fruit game garden gate
    girl glass gold grass ground group guard guest hair hall hand harbor hat head heart hill
    history holiday home horse hotel hour house idea iron island judge key king kitchen lady lake
    lamp land language leader leaf letter library light line lion list machine man map market
    master meal meeting member message metal milk mind minute mirror moment money month moon morning
    mother mountain mouth movie music name neck night noise north number office oil orange order
    owner page paint paper parent park partner party path people person picture piece pilot place
    plan plant plate player pocket poem point police pool power president price problem queen
    question radio rain record report rest river road rock roof room rope rose rule sail salt sand
    school sea season seat secret shadow sheep ship shirt shoe shop shore side sign silver sister
    sky smile smoke snow soldier son song sound south space spring square stage star station stone
    store storm story stranger street student summer sun table teacher team test theater thing
    thought ticket time tower town track train tree trip truth uncle valley village visitor voice
    wall war watch water way week west wheel wind window wine winter woman wood word work worker
    world writer year
    """
)

ADJECTIVES = _words(
    """
    able bad beautiful big bitter black blind blue bold brave brief bright broad broken brown busy
    calm careful certain cheap clean clear clever cold common complete cool cruel curious dangerous
    dark dead dear deep different difficult dirty double dry dull early easy empty equal
    famous fast fat fine firm flat foreign free fresh friendly full funny gentle good grand gray
    great green happy hard heavy hidden high holy honest hot huge human hungry important kind
    large last late lazy little local lonely long loose loud low lucky main mighty modern narrow
    natural near new nice noble old open pale perfect plain pleasant polite poor popular
    private proud public pure quick quiet rare ready real red rich right rough round royal sad
    safe serious sharp short sick silent simple single slow small smart smooth soft solid special
    steady steep strange strict strong sudden sweet tall thick thin tired tiny true ugly useful
    usual warm weak wealthy wet white whole wide wild wise wonderful wooden wrong yellow young
    """
)

VERBS = _words(
    """
    accepted admired answered asked attacked avoided believed borrowed broke brought built called
    carried caught changed chose cleaned climbed collected counted covered created crossed
    described discovered drew dropped expected explained followed forgot found gave guarded guided
    heard held helped hid joined kept killed knew learned left liked lost loved made met missed
    moved needed noticed offered opened ordered painted passed planned played pointed pressed
    promised protected pulled pushed reached read received remembered repaired replaced
    returned rode saved saw sent served shared showed sold stopped studied supported taught
    tested thanked threw told took touched trusted tried turned used visited waited walked wanted
    warned watched welcomed won wrote
    """
)

ADVERBS = _words(
    """
    again almost already alone always away carefully clearly early easily finally gently happily
    hardly loudly often once perhaps probably quickly quietly rarely really sadly slowly
    softly soon still suddenly surely together today twice usually
    """
)

PREPOSITIONS = _words(
    """
    about above across after against along among around before behind below beside between
    beyond inside near over past through toward under with without
    """
)

IDENTIFIERS = _words(
    """
    buffer cache client config count data event field file filter group index item key layer
    limit line list map name node number offset order output page path point price queue range
    rate record result row score size source state step table target task test text time token
    total tree type user value weight width window worker
    """
)

CODE_VERBS = _words(
    """
    add build check clean close compute convert copy count create fetch filter find format get
    load make merge move open parse print read remove reset save scan select send set sort split
    start stop store sum update write
    """
)
